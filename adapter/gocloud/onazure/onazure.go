// Package onazure has the driver of package gocloud for buckets of gocloud.dev/blob/azureblob.
package onazure

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	azblobblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"gocloud.dev/blob"

	"github.com/leasehold/leasehold/adapter/gocloud"
	"github.com/leasehold/leasehold/store"
)

// Driver updates by If-Match. A version is an ETag. Use an account with a flat namespace.
type Driver struct{}

var _ gocloud.Driver = Driver{}

// Suits returns an error if the bucket is not one of azureblob.
func (Driver) Suits(bucket *blob.Bucket) error {
	var client *container.Client
	if !bucket.As(&client) {
		return errors.New("the bucket is not one of azureblob")
	}
	return nil
}

// Updates reports true.
func (Driver) Updates() bool { return true }

// Write prepares one Put Blob.
func (Driver) Write(ctx context.Context, match store.Version, _ []byte) (context.Context, gocloud.Write) {
	var answer *http.Response // which azureblob drops
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	return policy.WithCaptureResponse(ctx, &answer), gocloud.Write{
		Before: func(as func(any) bool) error {
			var o *azblob.UploadStreamOptions
			if !as(&o) {
				return errors.New("azureblob shows no options of the upload")
			}
			o.BlockSize, o.Concurrency = store.MaxBody+1, 1 // what is smaller than a block is one request
			if match != "" {
				etag := azcore.ETag(match)
				o.AccessConditions = &azblob.AccessConditions{ModifiedAccessConditions: &azblobblob.ModifiedAccessConditions{IfMatch: &etag}}
			}
			return nil
		},
		Version: func() store.Version {
			if answer == nil {
				return ""
			}
			return store.Version(answer.Header.Get("ETag"))
		},
	}
}

// Version gives the ETag.
func (Driver) Version(as func(any) bool, _ []byte) store.Version {
	var read azblobblob.DownloadStreamResponse
	if as(&read) {
		return version(read.ETag)
	}
	var listed container.BlobItem
	if as(&listed) && listed.Properties != nil {
		return version(listed.Properties.ETag)
	}
	return ""
}

// version is an ETag as the headers have it: listings leave the quotes out.
func version(etag *azcore.ETag) store.Version {
	if etag == nil || *etag == "" {
		return ""
	}
	return store.Version(`"` + strings.Trim(string(*etag), `"`) + `"`)
}

// Begin does nothing: the SDK forgets where a listing is to begin. It begins with the prefix.
func (Driver) Begin(func(any) bool, string, string) {}

// Answer gives the status and the code of an error of Azure.
func (Driver) Answer(err error) (status int, code string) {
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return answer.StatusCode, answer.ErrorCode
	}
	return 0, ""
}
