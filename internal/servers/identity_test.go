package servers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/leasehold/leasehold/internal/servers"
)

func TestRestricted(t *testing.T) {
	for _, name := range servers.IAMNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.StartIAM(t, name)
			bucket := srv.Bucket(t)
			put(t, srv, bucket, "some/key", "one")
			policy := `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::BUCKET/*"}]}`
			reader := srv.Restricted(t, strings.ReplaceAll(policy, "BUCKET", bucket))
			if got := get(t, reader, bucket, "some/key"); got != "one" {
				t.Errorf("the key has %q, want %q", got, "one")
			}
			_, err := reader.Client().PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: &bucket, Key: aws.String("some/key"), Body: strings.NewReader("two"),
			}, once)
			if answer, ok := errors.AsType[smithy.APIError](err); !ok || answer.ErrorCode() != "AccessDenied" {
				t.Errorf("a put by who may only get: %v, want AccessDenied", err)
			}
			put(t, srv, bucket, "some/key", "three")
		})
	}
}
