package s3store_test

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// documented gives what docs/permissions.md has in JSON, by the headings above.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, section := range strings.Split(string(text), "\n#")[1:] {
		heading, body, _ := strings.Cut(strings.TrimLeft(section, "# "), "\n")
		for _, block := range regexp.MustCompile("(?s)\n```json\n(.*?)\n```\n").FindAllStringSubmatch(body, -1) {
			if blocks[heading] != "" {
				t.Errorf("%q has two of them", heading)
			}
			blocks[heading] = block[1]
		}
	}
	return blocks
}

// actions gives the table of those that differ from policy to policy.
func actions(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| for | actions |\n|---|---|\n")
	if !found {
		t.Fatal("docs/permissions.md has no table of actions")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		name, list, _ := strings.Cut(strings.Trim(line, "| \n"), " | ")
		rows[name] = strings.Split(strings.ReplaceAll(list, "`", ""), ", ")
	}
	return rows
}

// withActions is a policy with these actions in its first statement.
func withActions(t *testing.T, policy string, actions []string) string {
	t.Helper()
	before, rest, found := strings.Cut(policy, `"Action": [`)
	_, after, closed := strings.Cut(rest, "\n      ]")
	if !found || !closed {
		t.Fatalf("there is no list of actions in\n%s", policy)
	}
	return before + "\"Action\": [\n        \"" + strings.Join(actions, "\",\n        \"") + "\"\n      ]" + after
}

const (
	policyHeading    = "The policy"
	bucketHeading    = "Only conditional writes, no deletes"
	lifecycleHeading = "Old versions and incomplete uploads"
)

func TestPoliciesInDocs(t *testing.T) {
	st, err := s3store.New(s3.New(s3.Options{Region: "eu-central-1"}), "my-bucket", &s3store.Options{Prefix: "locks"})
	if err != nil {
		t.Fatal(err)
	}
	found := documented(t)
	rows := actions(t)
	for name, operations := range map[string][]string{
		"holder and follower, layout `object`": {"get", "put"},
		"holder and follower, other layouts":   {"get", "put", "list", "delete"},
		"observer":                             {"get", "list"},
		"collector":                            {"get", "list", "delete"},
		"fence with values above about 1 MiB":  {"large", "list", "delete"},
	} {
		want, err := st.Policy(operations...)
		if err != nil {
			t.Fatal(err)
		}
		if name == "holder and follower, layout `object`" && found[policyHeading] != want {
			t.Errorf("docs/permissions.md has under %q:\n%s\nwant\n%s", policyHeading, found[policyHeading], want)
		}
		if got := withActions(t, found[policyHeading], rows[name]); got != want {
			t.Errorf("docs/permissions.md has for a %s:\n%s\nwant\n%s", name, got, want)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("nothing tests what is for a %s", name)
	}
	delete(found, policyHeading)
	delete(found, bucketHeading)    // TestBucketPolicy
	delete(found, lifecycleHeading) // TestLifecycle
	for heading := range found {
		t.Errorf("nothing tests what is under %q", heading)
	}
}

// inBucket is what docs/permissions.md has under a heading, for another bucket.
func inBucket(t *testing.T, heading, bucket string) string {
	t.Helper()
	document := documented(t)[heading]
	if document == "" {
		t.Fatalf("docs/permissions.md has nothing under %q", heading)
	}
	return strings.NewReplacer("my-bucket", bucket, "locks/", prefix+"/").Replace(document)
}

// The bucket's policy lets through what a lock sends, and refuses what it never sends.
func TestBucketPolicy(t *testing.T) {
	all := policy{Statement: []rule{{Effect: "Allow", Action: many{
		"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket", "s3:AbortMultipartUpload",
	}, Resource: many{"*"}}}}
	srv := servers.Start(t, "versitygw")
	bucket := srv.Bucket(t)
	rules := parse(t, inBucket(t, bucketHeading, bucket))
	st := open(t, srv.ClientAt((&judge{identity: all, bucket: rules}).start(t, srv.Endpoint)), bucket)
	for _, operation := range []string{"put", "get", "list"} {
		if operation == "get" {
			if _, err := st.Put(t.Context(), "k", []byte("x"), store.IfAbsent()); err != nil {
				t.Error(err)
			}
		}
		if err := uses[operation](t.Context(), st.Store); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
	}
	for name, do := range map[string]func() error{
		"unconditional put":        func() error { return st.Plant(t.Context(), "k", []byte("y")) },
		"multipart upload":         func() error { _, err := st.PutLarge(t.Context(), "k", random(part+1)); return err },
		"large object in one part": func() error { _, err := st.PutLarge(t.Context(), "k", random(1)); return err },
		"delete":                   func() error { return st.Delete(t.Context(), "k") },
	} {
		if err := do(); !isDenied(err) {
			t.Errorf("%s: %v, want it denied", name, err)
		}
	}
	if ids := open(t, srv.Client(), bucket).uploads(t); len(ids) != 0 {
		t.Errorf("%d uploads have not ended", len(ids))
	}
	elsewhere, err := s3store.New(st.client, bucket, &s3store.Options{Prefix: "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = elsewhere.PutLarge(t.Context(), "large", random(part+1)); err != nil {
		t.Errorf("below another prefix: %v", err)
	}
	if err = elsewhere.Delete(t.Context(), "large"); err != nil {
		t.Errorf("below another prefix: %v", err)
	}
}

// No server at hand takes the condition. When one does, this fails, and then that one
// can test the policy instead of a model of S3's rules.
func TestBucketPolicyOnServers(t *testing.T) {
	for _, name := range servers.IAMNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.StartIAM(t, name)
			bucket := srv.Bucket(t)
			_, err := srv.Client().PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{
				Bucket: &bucket, Policy: aws.String(inBucket(t, bucketHeading, bucket)),
			})
			if answer, ok := errors.AsType[smithy.APIError](err); !ok || answer.ErrorCode() != "MalformedPolicy" {
				t.Errorf("PutBucketPolicy gives %v: test there what it does, and change the table in docs/permissions.md", err)
			}
			if name == "minio" {
				return // its bucket policies are for anonymous requests only
			}
			rules := parse(t, inBucket(t, bucketHeading, bucket))
			rules.Statement = slices.DeleteFunc(rules.Statement, func(r rule) bool { return r.Condition != nil })
			if len(rules.Statement) != 1 {
				t.Fatalf("%d statements without a condition, want 1", len(rules.Statement))
			}
			_, err = srv.Client().PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &bucket, Policy: aws.String(rules.String())})
			if err != nil {
				t.Fatal(err)
			}
			client := srv.Restricted(t, policyOf(t, srv.Client(), bucket, "get", "put", "list", "delete").String()).Client()
			for _, operation := range []string{"put", "get", "list"} {
				if err = uses[operation](t.Context(), (arena{server: srv}).as(t, client, bucket)); err != nil {
					t.Errorf("%s: %v", operation, err)
				}
			}
			if err = open(t, client, bucket).Delete(t.Context(), "k"); !errors.Is(err, store.ErrDenied) {
				t.Errorf("delete: %v, want it denied", err)
			}
		})
	}
}

// lifecycle is the rule of docs/permissions.md.
func lifecycle(t *testing.T) (config types.BucketLifecycleConfiguration) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(inBucket(t, lifecycleHeading, "")))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&config); err != nil {
		t.Fatal(err)
	}
	return config
}

// The lifecycle rule is one that a server takes, and it says nothing of current objects.
func TestLifecycle(t *testing.T) {
	config := lifecycle(t)
	if len(config.Rules) != 1 {
		t.Fatalf("%d rules, want 1", len(config.Rules))
	}
	rule := config.Rules[0]
	if e := rule.Expiration; e != nil && (e.Days != nil || e.Date != nil) {
		t.Error("it deletes locks")
	}
	if got := aws.ToString(rule.Filter.Prefix); got != prefix+"/" {
		t.Errorf("it is for %q", got)
	}
	srv := servers.Start(t, "minio")
	client, bucket := srv.Client(), srv.Bucket(t)
	_, err := client.PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{Bucket: &bucket, LifecycleConfiguration: &config})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.GetBucketLifecycleConfiguration(t.Context(), &s3.GetBucketLifecycleConfigurationInput{Bucket: &bucket})
	if err != nil || len(got.Rules) != 1 {
		t.Fatalf("the server keeps %d rules, %v", len(got.Rules), err)
	}
	kept := got.Rules[0]
	if n := kept.NoncurrentVersionExpiration; n == nil || aws.ToInt32(n.NoncurrentDays) != *rule.NoncurrentVersionExpiration.NoncurrentDays {
		t.Errorf("of noncurrent versions the server keeps %+v", n)
	}
	if e := kept.Expiration; e == nil || !aws.ToBool(e.ExpiredObjectDeleteMarker) || e.Days != nil || e.Date != nil {
		t.Errorf("of the expiry the server keeps %+v", e)
	}
	if kept.AbortIncompleteMultipartUpload != nil {
		t.Error("the server knows AbortIncompleteMultipartUpload: change the table in docs/permissions.md")
	}
}

// Where there are no such rules, nobody is told that there are.
func TestLifecycleRefused(t *testing.T) {
	srv := servers.Start(t, "versitygw")
	config, bucket := lifecycle(t), srv.Bucket(t)
	_, err := srv.Client().PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{Bucket: &bucket, LifecycleConfiguration: &config})
	if answer, ok := errors.AsType[smithy.APIError](err); !ok || answer.ErrorCode() != "NotImplemented" {
		t.Errorf("PutBucketLifecycleConfiguration gives %v: test there what it does, and change the table in docs/permissions.md", err)
	}
}

// A versioned bucket keeps what was written over, and can keep locks.
func TestVersionedBucket(t *testing.T) {
	srv := servers.Start(t, "minio")
	client, bucket := srv.Client(), srv.Bucket(t)
	_, err := client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: &bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}
	st := open(t, client, bucket)
	for range 2 {
		if err = uses["put"](t.Context(), st.Store); err != nil {
			t.Fatal(err)
		}
		if err = st.Delete(t.Context(), "put"); err != nil {
			t.Fatal(err)
		}
	}
	all, err := client.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket})
	if err != nil || len(all.Versions) != 4 || len(all.DeleteMarkers) != 2 {
		t.Errorf("%d versions and %d delete markers after 4 writes and 2 deletes, %v", len(all.Versions), len(all.DeleteMarkers), err)
	}
}
