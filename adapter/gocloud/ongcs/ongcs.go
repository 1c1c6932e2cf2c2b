// Package ongcs has the driver of package gocloud for buckets of gocloud.dev/blob/gcsblob.
package ongcs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob"
	"google.golang.org/api/googleapi"

	"github.com/leasehold/leasehold/adapter/gocloud"
	"github.com/leasehold/leasehold/store"
)

// Driver updates by the condition of a generation. A version is a generation. The client does not
// tell a missing object from a missing bucket, so an absent object costs a listing too, and the
// right to list.
type Driver struct{}

var _ gocloud.Driver = Driver{}

// Suits returns an error if the bucket is not one of gcsblob.
func (Driver) Suits(bucket *blob.Bucket) error {
	var client *storage.Client
	if !bucket.As(&client) {
		return errors.New("the bucket is not one of gcsblob")
	}
	return nil
}

// Updates reports true.
func (Driver) Updates() bool { return true }

// Write prepares one upload.
func (Driver) Write(ctx context.Context, match store.Version, _ []byte) (context.Context, gocloud.Write) {
	var w *storage.Writer
	return ctx, gocloud.Write{
		Before: func(as func(any) bool) error {
			var object **storage.ObjectHandle
			if !as(&object) {
				return errors.New("gcsblob shows no object")
			}
			*object = (*object).Retryer(storage.WithPolicy(storage.RetryNever))
			if match != "" {
				generation, err := strconv.ParseInt(string(match), 10, 64)
				if err != nil || generation < 1 {
					return fmt.Errorf("the version %q is not a generation", match)
				}
				*object = (*object).If(storage.Conditions{GenerationMatch: generation})
			}
			if !as(&w) {
				return errors.New("gcsblob shows no writer")
			}
			w.ChunkSize = 0 // one request, and no buffer of 16 MiB
			return nil
		},
		Version: func() store.Version { return version(w.Attrs().Generation) },
	}
}

// Version gives the generation.
func (Driver) Version(as func(any) bool, _ []byte) store.Version {
	var read *storage.Reader
	if as(&read) {
		return version(read.Attrs.Generation)
	}
	var listed storage.ObjectAttrs
	if as(&listed) {
		return version(listed.Generation)
	}
	return ""
}

func version(generation int64) store.Version {
	if generation == 0 {
		return ""
	}
	return store.Version(strconv.FormatInt(generation, 10))
}

// Begin sets StartOffset, which is the first name that is listed.
func (Driver) Begin(as func(any) bool, prefix, after string) {
	var query *storage.Query
	if as(&query) {
		// Before the prefix of the listing is that of the bucket, if it has one.
		query.StartOffset = strings.TrimSuffix(query.Prefix, prefix) + after
	}
}

// Answer gives the status of an error of Google Cloud Storage, and a code if the bucket is missing.
func (Driver) Answer(err error) (status int, code string) {
	answer, ok := errors.AsType[*googleapi.Error](err)
	if !ok {
		return 0, ""
	}
	// An upload can miss nothing but the bucket.
	if answer.Code == http.StatusNotFound && !errors.Is(err, storage.ErrObjectNotExist) {
		code = "NoSuchBucket"
	}
	return answer.Code, code
}
