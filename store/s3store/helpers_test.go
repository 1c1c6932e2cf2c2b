package s3store_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store/internal/wiretest"
	"github.com/leasehold/leasehold/store/s3store"
)

// A faulty server is one of package wiretest.
type faulty struct{ *wiretest.Server }

func newFaulty(t *testing.T, answer string, end wiretest.Ending) *faulty {
	t.Helper()
	return &faulty{wiretest.New(t, answer, end)}
}

// client gives a client as an unsuspecting caller would make it: with the SDK's
// own retries, and with checksums.
func client(endpoint string, set ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint:     aws.String(endpoint),
		Region:           "us-east-1",
		UsePathStyle:     true,
		Credentials:      credentials.NewStaticCredentialsProvider("key", "secret", ""),
		RetryMaxAttempts: 5,
		// As config.LoadDefaultConfig sets them.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}, set...)
}

func (f *faulty) store(t *testing.T, set ...func(*s3.Options)) *s3store.Store {
	t.Helper()
	return newStore(t, client("http://"+f.Addr, set...))
}

func newStore(t *testing.T, client *s3.Client) *s3store.Store {
	t.Helper()
	st, err := s3store.New(client, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// coded is an answer with an error code, in the form of S3.
func coded(status int, code string) string {
	return wiretest.Raw(status, "Content-Type: application/xml\r\n", xmlError(code, "words"))
}

func xmlError(code, message string) string {
	return "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>" + message + "</Message></Error>"
}

// drain reads a listing to its end.
func drain(ctx context.Context, st *s3store.Store, prefix, after string) (keys []string, err error) {
	for entry, e := range st.List(ctx, prefix, after) {
		if e != nil {
			return keys, e
		}
		keys = append(keys, entry.Key)
	}
	return keys, nil
}
