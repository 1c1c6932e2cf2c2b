package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// objects are those of a bucket, by the bare SDK.
type objects struct {
	client *s3.Client
	bucket string
}

func (p *place) objects() objects { return objects{p.client(), p.bucket} }

// read decodes an object, and returns "" if there is none.
func (o objects) read(ctx context.Context, key string, into any) (etag string, err error) {
	out, err := o.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &o.bucket, Key: &key})
	if statusOf(err) == http.StatusNotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Body.Close() }()
	body, err := io.ReadAll(out.Body)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), json.Unmarshal(body, into)
}

// write encodes an object that is written over whatever there is.
func (o objects) write(ctx context.Context, key string, what any) error {
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	_, err = o.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &o.bucket, Key: &key, Body: bytes.NewReader(body)})
	return err
}

// replace encodes an object that is written only over the one with this ETag, or, if that
// is "", where there is none. A caller that is too late gets errHeld.
func (o objects) replace(ctx context.Context, key, etag string, what any) (string, error) {
	body, err := json.Marshal(what)
	if err != nil {
		return "", err
	}
	in := &s3.PutObjectInput{Bucket: &o.bucket, Key: &key, Body: bytes.NewReader(body)}
	if etag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &etag
	}
	out, err := o.client.PutObject(ctx, in)
	if outrun(err) {
		return "", errHeld
	}
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

func (o objects) remove(ctx context.Context, key string) error {
	_, err := o.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &o.bucket, Key: &key})
	return err
}

// outrun reports that another was faster. Some servers say so with 404 where an object with
// another ETag was expected and there is none, and S3 with 409 where two write at once.
func outrun(err error) bool {
	switch statusOf(err) {
	case http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed:
		return true
	}
	return false
}

// statusOf is that of the answer that an error came with, or 0.
func statusOf(err error) int {
	type answer interface {
		error
		HTTPStatusCode() int
	}
	if a, ok := errors.AsType[answer](err); ok {
		return a.HTTPStatusCode()
	}
	return 0
}
