package storeurl

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"

	"github.com/leasehold/leasehold/store"
)

// TestAWSCredentialsAfterTheFirst: a failure that may be a wrong setting is one until there were credentials, and
// passes from then on. Those of EC2 are used for longer than the SDK tells.
func TestAWSCredentialsAfterTheFirst(t *testing.T) {
	for source, used := range map[string]time.Duration{"a program": roleTold, ec2rolecreds.ProviderName: roleLasts} {
		synctest.Test(t, func(t *testing.T) {
			var failure error
			asked := 0
			provider := keepAWS(func(context.Context) (aws.Config, error) {
				return aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					asked++
					return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", Source: source, CanExpire: true, Expires: time.Now().Add(roleTold)}, failure
				})}, nil
			})
			failure = errors.New("exit status 1")
			if _, err := provider.Retrieve(t.Context()); !errors.Is(err, store.ErrDenied) {
				t.Errorf("%s, before the first: %v", source, err)
			}
			failure = nil
			if _, err := provider.Retrieve(t.Context()); err != nil {
				t.Fatal(err)
			}
			failure = errors.New("exit status 1")
			time.Sleep(roleTold - awsEarly - time.Second)
			if _, err := provider.Retrieve(t.Context()); err != nil || asked != 2 {
				t.Errorf("%s, while they are fresh: %v, asked %d times", source, err, asked)
			}
			time.Sleep(2 * time.Second)
			if _, err := provider.Retrieve(t.Context()); err != nil {
				t.Errorf("%s, when they are to be replaced: %v", source, err)
			}
			if synctest.Wait(); asked != 3 {
				t.Errorf("%s: asked %d times", source, asked)
			}
			time.Sleep(used - roleTold + awsEarly - last - 5*time.Second)
			if _, err := provider.Retrieve(t.Context()); err != nil {
				t.Errorf("%s, before they end: %v", source, err)
			}
			synctest.Wait()
			time.Sleep(10 * time.Second)
			if _, err := provider.Retrieve(t.Context()); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrDenied) {
				t.Errorf("%s, when they have ended: %v", source, err)
			}
		})
	}
}

// TestRefusedAWSCredentials: credentials that the store refuses are replaced before their end, and asked for once in
// five seconds at most.
func TestRefusedAWSCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, asked := "OLD", 0
		provider := keepAWS(func(context.Context) (aws.Config, error) {
			return aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				asked++
				return aws.Credentials{AccessKeyID: key, SecretAccessKey: "secret", CanExpire: true, Expires: time.Now().Add(time.Hour)}, nil
			})}, nil
		})
		get := func() string {
			creds, err := provider.Retrieve(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return creds.AccessKeyID
		}
		get()
		for range 600 { // one minute
			provider.(interface{ Invalidate() }).Invalidate()
			get()
			time.Sleep(100 * time.Millisecond)
		}
		if asked < 2 || asked > 13 {
			t.Errorf("asked %d times in a minute", asked)
		}
		key = "NEW"
		time.Sleep(earlier)
		provider.(interface{ Invalidate() }).Invalidate()
		if got := get(); got != "NEW" {
			t.Errorf("with %s after they were replaced", got)
		}
		before := asked
		time.Sleep(time.Minute)
		if get(); asked != before {
			t.Error("asked again without a refusal")
		}
	})
}
