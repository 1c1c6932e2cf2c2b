// Package ons3 has the driver of package gocloud for buckets of gocloud.dev/blob/s3blob.
package ons3

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"gocloud.dev/blob"

	"github.com/leasehold/leasehold/adapter/gocloud"
	"github.com/leasehold/leasehold/store"
)

// Driver updates by If-Match. A version is an ETag. A bucket may be opened with any client and
// any options of s3blob but UseLegacyList, with which a listing begins with the first key
// whatever it is asked for: that is right, and costs more.
type Driver struct{}

var _ gocloud.Driver = Driver{}

// Suits returns an error if the bucket is not one of s3blob.
func (Driver) Suits(bucket *blob.Bucket) error {
	var client *s3.Client
	if !bucket.As(&client) {
		return errors.New("the bucket is not one of s3blob")
	}
	return nil
}

// Updates reports true.
func (Driver) Updates() bool { return true }

// Write prepares one PutObject.
func (Driver) Write(ctx context.Context, match store.Version, _ []byte) (context.Context, gocloud.Write) {
	w := &write{match: match}
	return ctx, gocloud.Write{Before: w.before, Version: func() store.Version { return w.version }}
}

// A write stands between the transfer manager of one write and the client: the manager repeats
// requests, and s3blob drops its answer, which has the version.
type write struct {
	transfermanager.S3APIClient
	match, version store.Version
}

func (w *write) before(as func(any) bool) error {
	var manager *transfermanager.Client
	if !as(&manager) {
		return errors.New("s3blob shows no transfer manager")
	}
	// A manager shows its options to an upload only. Without parts there can be none, and so this
	// one ends there.
	var o transfermanager.Options
	_, _ = manager.UploadObject(context.Background(), &transfermanager.UploadObjectInput{}, func(its *transfermanager.Options) {
		o = its.Copy()
		its.MaxUploadParts = 0
	})
	if o.S3 == nil {
		return errors.New("the transfer manager of s3blob shows no client")
	}
	w.S3APIClient = o.S3
	*manager = *transfermanager.New(w, func(own *transfermanager.Options) {
		*own = o
		own.S3 = w
	})
	return nil
}

// PutObject sends the request once. A body of a store is too small for more than one.
func (w *write) PutObject(ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	if w.match != "" {
		in.IfMatch = aws.String(string(w.match))
	}
	out, err := w.S3APIClient.PutObject(ctx, in, append(opts, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })...)
	if err == nil {
		w.version = store.Version(aws.ToString(out.ETag))
	}
	return out, err
}

// Version gives the ETag.
func (Driver) Version(as func(any) bool, _ []byte) store.Version {
	var read s3.GetObjectOutput
	if as(&read) {
		return store.Version(aws.ToString(read.ETag))
	}
	var listed types.Object
	if as(&listed) {
		return store.Version(aws.ToString(listed.ETag))
	}
	return ""
}

// Begin sets StartAfter.
func (Driver) Begin(as func(any) bool, prefix, after string) {
	var in *s3.ListObjectsV2Input
	if as(&in) {
		// Before the prefix of the listing is that of the bucket, if it has one.
		in.StartAfter = aws.String(strings.TrimSuffix(aws.ToString(in.Prefix), prefix) + after)
	}
}

// Answer gives the status and the code of an error of S3.
func (Driver) Answer(err error) (status int, code string) {
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = answer.HTTPStatusCode()
	}
	if answer, ok := errors.AsType[smithy.APIError](err); ok && status != 0 {
		code = answer.ErrorCode()
	}
	return status, code
}
