package storeurl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
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
	for _, c := range []struct {
		source     string
		told, used time.Duration
	}{
		{"a program", time.Hour, time.Hour},
		{ec2rolecreds.ProviderName, time.Hour, 6 * time.Hour},
		{ec2rolecreds.ProviderName, time.Hour - time.Second, time.Hour - time.Second}, // they do end
	} {
		synctest.Test(t, func(t *testing.T) {
			var failure error
			asked := 0
			provider := keepAWS(func(context.Context) (aws.Config, error) {
				return aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					asked++
					return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", Source: c.source, CanExpire: true, Expires: time.Now().Add(c.told)}, failure
				})}, nil
			})
			failure = errors.New("exit status 1")
			if _, err := provider.Retrieve(t.Context()); !errors.Is(err, store.ErrDenied) {
				t.Errorf("%s, before the first: %v", c.source, err)
			}
			failure = nil
			if _, err := provider.Retrieve(t.Context()); err != nil {
				t.Fatal(err)
			}
			failure = errors.New("exit status 1")
			time.Sleep(c.told - 5*time.Minute - time.Second)
			_, err := provider.Retrieve(t.Context())
			if synctest.Wait(); err != nil || asked != 2 {
				t.Errorf("%s, while they are fresh: %v, asked %d times", c.source, err, asked)
			}
			time.Sleep(2 * time.Second)
			if _, err := provider.Retrieve(t.Context()); err != nil {
				t.Errorf("%s, when they are to be replaced: %v", c.source, err)
			}
			if synctest.Wait(); asked != 3 {
				t.Errorf("%s: asked %d times", c.source, asked)
			}
			time.Sleep(c.used - c.told + 5*time.Minute - 15*time.Second)
			if _, err := provider.Retrieve(t.Context()); err != nil {
				t.Errorf("%s, before they end: %v", c.source, err)
			}
			synctest.Wait()
			time.Sleep(10 * time.Second)
			if _, err := provider.Retrieve(t.Context()); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrDenied) {
				t.Errorf("%s, when they have ended: %v", c.source, err)
			}
			failure = errors.New("the SSO token has expired")
			if _, err := provider.Retrieve(t.Context()); !errors.Is(err, store.ErrDenied) || !strings.HasPrefix(err.Error(), "the login has expired") || !strings.HasSuffix(err.Error(), "(the SSO token has expired)") {
				t.Errorf("%s, when the login has ended: %v", c.source, err)
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
		invalidate := provider.(interface{ Invalidate() }).Invalidate //nolint:errcheck,forcetypeassert // s3store calls it
		get()
		for range 600 { // one minute
			invalidate()
			get()
			time.Sleep(100 * time.Millisecond)
		}
		if asked < 2 || asked > 13 {
			t.Errorf("asked %d times in a minute", asked)
		}
		key = "NEW"
		time.Sleep(earlier)
		invalidate()
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

// TestAWSCredentialsThatCannotBe: what was pasted with an end of a line, say, is told before a server refuses it.
func TestAWSCredentialsThatCannotBe(t *testing.T) {
	for _, creds := range []aws.Credentials{
		{AccessKeyID: "AK ID", SecretAccessKey: "secret"},
		{AccessKeyID: "AKID", SecretAccessKey: "secret\n"},
		{AccessKeyID: "AKID", SecretAccessKey: "secret", SessionToken: "t\x7f"},
	} {
		creds.Source = "a program"
		_, err := keepAWS(func(context.Context) (aws.Config, error) {
			return aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return creds, nil })}, nil
		}).Retrieve(t.Context())
		if want := "the AWS credentials of a program have a space, an end of a line or another character in them that none has: set them again without it"; err == nil || err.Error() != want || !errors.Is(err, store.ErrDenied) {
			t.Errorf("%q: %v, want %s", creds.AccessKeyID, err, want)
		}
	}
	_, err := keepAWS(func(context.Context) (aws.Config, error) { return aws.Config{}, errors.New("no configuration") }).Retrieve(t.Context())
	if !errors.Is(err, store.ErrDenied) || !strings.HasSuffix(err.Error(), "(no configuration)") {
		t.Errorf("without a configuration: %v", err)
	}
}

// TestAWSFilesAreWatched: credentials are read again when a file of them has changed in any way.
func TestAWSFilesAreWatched(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "config"), filepath.Join(dir, "other")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "absent"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	now := time.Now()
	write := func(name, text string, at time.Time) error {
		return errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Chtimes(name, at, at))
	}
	stamps := &awsStamps{}
	for _, step := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"none is there", func() error { return nil }, false},
		{"it comes", func() error { return write(file, "1", now) }, true},
		{"nothing happens", func() error { return nil }, false},
		{"it grows", func() error { return write(file, "22", now) }, true},
		{"it is written", func() error { return write(file, "33", now.Add(time.Second)) }, true},
		{"it is replaced", func() error { return errors.Join(write(other, "44", now.Add(time.Second)), os.Rename(other, file)) }, true},
		{"nothing happens again", func() error { return nil }, false},
		{"it goes", func() error { return os.Remove(file) }, true},
		{"it is gone", func() error { return nil }, false},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := stamps.changed(); got != step.want {
			t.Errorf("%s: changed %v", step.name, got)
		}
	}
}

// TestAWSCredentialsWithoutAnEnd are asked for once.
func TestAWSCredentialsWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		provider := keepAWS(func(context.Context) (aws.Config, error) {
			return aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				asked++
				return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
			})}, nil
		})
		for range 3 {
			if creds, err := provider.Retrieve(t.Context()); err != nil || creds.AccessKeyID != "AKID" {
				t.Errorf("%q, %v", creds.AccessKeyID, err)
			}
			time.Sleep(24 * time.Hour)
		}
		if asked != 1 {
			t.Errorf("they were asked for %d times", asked)
		}
	})
}
