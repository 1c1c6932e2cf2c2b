package storeurl_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

func TestSplitLock(t *testing.T) {
	for _, tt := range []struct{ lock, store, key string }{
		{"s3://bucket/key", "s3://bucket", "key"},
		{"s3://bucket/jobs/backup?region=eu-west-1", "s3://bucket?region=eu-west-1", "jobs/backup"},
		{"s3://bucket/100%25/a%20b%3F%23?path_style=true", "s3://bucket?path_style=true", "100%/a b?#"},
		{"s3://bucket/a+b", "s3://bucket", "a+b"},
		{"s3://bucket/ü", "s3://bucket", "ü"},
		{"S3://Bucket/Key", "s3://Bucket", "Key"},
		{"file:///var/lock/key", "file:///var/lock", "key"},
		{"file:///var//lock//key", "file:///var/lock", "key"},
		{"file://localhost/var/key", "file://localhost/var", "key"},
		{"file:///a%20b/c%3Fd", "file:///a%20b", "c?d"},
		{"file:///key", "file:///", "key"},
		{"file:///C:/dir/key", "file:///C:/dir", "key"},
		{"mem://name/jobs/backup", "mem://name", "jobs/backup"},
		{"gs://bucket/jobs/backup?user_project=p", "gs://bucket?user_project=p", "jobs/backup"},
		{"gs://bucket/a%20b", "gs://bucket", "a b"},
		{"azblob://container/jobs/backup?account=acct", "azblob://container?account=acct", "jobs/backup"},
		{"azblob://container/key?endpoint=http://127.0.0.1:10000/acct", "azblob://container?endpoint=http://127.0.0.1:10000/acct", "key"},
		{"quorum://main/jobs/backup", "quorum://main", "jobs/backup"},
		{"quorum:///jobs/backup?member=file:///a&member=file:///b", "quorum:///?member=file:///a&member=file:///b", "jobs/backup"},
	} {
		gotStore, gotKey, err := storeurl.SplitLock(tt.lock)
		if gotStore != tt.store || gotKey != tt.key || err != nil {
			t.Errorf("SplitLock(%q) = %q, %q, %v, want %q, %q", tt.lock, gotStore, gotKey, err, tt.store, tt.key)
		}
	}
}

// Locks that the URL of any store cannot have.
func TestSplitLockRefuses(t *testing.T) {
	for _, tt := range []struct{ lock, says string }{
		{"s3://bucket", "a lock needs a key"},
		{"s3://bucket/", "a lock needs a key"},
		{"s3://bucket?region=eu-west-1", "a lock needs a key"},
		{"s3://bucket/jobs/", "must not end with a slash"},
		{"file:///dir/", "must not end with a slash"},
		{"file://", "a lock needs a key"},
		{"mem://name", "a lock needs a key"},
		{"s3://bucket//key", "begins or ends with a slash, or has two in a row"},
		{"s3://bucket/a/../b", `".."`},
		{"file:///dir/..", `".."`},
		// These used to be cleaned, without a look at the links on the way.
		{"file:///dir/../key", `".."`},
		{"file:///dir/a/../../b/key", `".."`},
		{"file:///../key", `".."`},
		{"file:///dir/%2e%2E/key", `".."`},
		{"file:///dir/..%2Fb/key", `".."`},
		{"file:///C:/dir/..%5Cb/key", `".."`},
		{"s3://bucket/a%0Ab", "control character"},
		{"gs://bucket", "a lock needs a key"},
		{"gs://bucket/a/../b", `".."`},
		{"azblob://container/", "a lock needs a key"},
	} {
		if _, _, err := storeurl.SplitLock(tt.lock); !errors.Is(err, storeurl.ErrURL) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("SplitLock(%q) gives %v, want ErrURL that says %q", tt.lock, err, tt.says)
		}
		if st, _, err := storeurl.OpenLock(t.Context(), tt.lock); !errors.Is(err, storeurl.ErrURL) || st != nil {
			t.Errorf("OpenLock(%q) gives %v, %v, want ErrURL", tt.lock, st, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	noAWS(t)
	noGoogle(t)
	noAzure(t)
	for _, tt := range []struct{ url, says string }{
		{"", "no scheme"},
		{"jobs/backup", "no scheme; it must begin with one of azblob://, file://, gs://, mem://, quorum://, s3://"},
		{"ftp://host/key", "unknown scheme ftp://; this version knows azblob://, file://, gs://, mem://, quorum://, s3://"},
		{"http://host/key", "unknown scheme http://"},
		{"gcs://bucket/key", "write gs://BUCKET/KEY"},
		{"az://container/key", "write azblob://CONTAINER/KEY?account=ACCOUNT"},
		{"abfss://container@acct.dfs.core.windows.net/key", "write azblob://CONTAINER/KEY?account=ACCOUNT"},
		{"wasb://container@acct.blob.core.windows.net/key", "write azblob://CONTAINER/KEY?account=ACCOUNT"},
		{"https://acct.blob.core.windows.net/container/key", "write azblob://CONTAINER/KEY?account=ACCOUNT"},
		{"https://acct.blob.core.windows.net/container/key?sv=1&sig=hunter2", "write azblob://CONTAINER/KEY?account=ACCOUNT"},
		{"https://storage.googleapis.com/bucket/key", "write gs://BUCKET/KEY"},
		{"https://bucket.storage.googleapis.com/key", "write gs://BUCKET/KEY"},
		{"https://bucket.s3.eu-central-1.amazonaws.com/key", "write s3://BUCKET/KEY?region=REGION"},
		{"s3a://bucket/key", "write s3://BUCKET/KEY"},
		{"s3n://bucket/key", "write s3://BUCKET/KEY"},
		{"google://bucket/key", "write gs://BUCKET/KEY"},
		{"azure://container/key", "write azblob://CONTAINER/KEY?account=ACCOUNT"},
		{"abfs://container/key", "write azblob://CONTAINER/KEY?account=ACCOUNT"},
		{"wasbs://container/key", "write azblob://CONTAINER/KEY?account=ACCOUNT"},
		{"https://storage.cloud.google.com/bucket/key", "write gs://BUCKET/KEY"},
		{"https://acct.z01.blob.storage.azure.net/container/key", "write azblob://CONTAINER/KEY?account=ACCOUNT"},
		{"gs:///key", "there is no bucket"},
		{"gs://bucket:9000/key", "a bucket has no port"},
		{"gs://bucket?region=a", `unknown parameter "region"; there are endpoint, user_project, anonymous, if_match`},
		{"gs://bucket?anonymous=1", "anonymous is neither true nor false"},
		{"gs://bucket?endpoint=http://127.0.0.1:9&anonymous=false", "over https only"},
		{"gs://bucket?anonymous=true&endpoint=http://127.0.0.1:9/path", "a scheme and a host"},
		{"gs://bucket?endpoint=https://s3.amazonaws.com", "another cloud: write s3://BUCKET/KEY"},
		{"s3://bucket?endpoint=https://acct.blob.core.windows.net", "another cloud: write azblob://"},
		{"azblob:///key", "there is no container"},
		{"azblob://acct.blob.core.windows.net/container/key", "the container comes first"},
		{"azblob://Container", "3 to 63 small letters"},
		{"azblob://ab", "3 to 63 small letters"},
		{"azblob://a--b", "3 to 63 small letters"},
		{"azblob://container?account=Acct", "3 to 24 small letters"},
		{"azblob://container?account=acct.example.com/", "3 to 24 small letters"},
		{"azblob://container?endpoint=https://storage.googleapis.com", "another cloud: write gs://"},
		{"azblob://container?endpoint=http://127.0.0.1:10000", "ends with the account"},
		{"azblob://container?endpoint=http://127.0.0.1:10000/acct/container", "without the container"},
		{"azblob://container?account=acct&endpoint=https://other.blob.core.windows.net", `that of the account "other"`},
		{"azblob://container?sas=hunter2", `unknown parameter "sas"; there are account, endpoint, if_match`},
		{"s3:bucket/key", "write s3://"},
		{"file:dir/key", "write file:// and an absolute path"},
		{"s3:///key", "there is no bucket"},
		{"s3://bucket:9000/key", "a bucket has no port"},
		{"s3://bucket/100%", "%25"},
		{"s3://bucket/a#b", "%23"},
		{"s3://bucket/a#", "%23"},
		{"s3://bucket?zone=1", `unknown parameter "zone"; there are region, endpoint, path_style, profile, unquoted_etags, if_match, content_md5, encryption, kms_key, requester_pays`},
		{"s3://bucket?region=a&region=b", `"region" is there 2 times`},
		{"s3://bucket?region=", `"region" is empty`},
		{"s3://bucket?region=a;b", "cannot be read"},
		{"s3://bucket?path_style=yes", "neither true nor false"},
		{"s3://bucket?unquoted_etags=1", "unquoted_etags is neither true nor false"},
		{"s3://bucket?content_md5=1", "content_md5 is neither true nor false"},
		{"s3://bucket?requester_pays=1", "requester_pays is neither true nor false"},
		{"s3://bucket?region=a&encryption=des", `"des" is none of AES256`},
		{"s3://bucket?region=a&kms_key=k", "needs the encryption aws:kms"},
		{"s3://bucket?endpoint=127.0.0.1:9000", "http://HOST:PORT"},
		{"s3://bucket?endpoint=localhost:9000", "http://HOST:PORT"},
		{"s3://bucket?endpoint=ftp://host", "http://HOST:PORT"},
		{"s3://bucket?endpoint=http://", "http://HOST:PORT"},
		{"s3://bucket?endpoint=http://host?path_style=true", "after an &"},
		{"s3://bucket?endpoint=http://host%23a", "after an &"},
		{"s3://bucket/k?endpoint=http://host:9000/bucket", "write s3://bucket/KEY?endpoint=http://host:9000"},
		{"s3://bucket/k?endpoint=http://host:9000/bucket/&path_style=true", "write s3://bucket/KEY?endpoint=http://host:9000"},
		{"s3://bucket/k?endpoint=http://host:9000/bucket/a/b", "write s3://bucket/a/b/KEY?endpoint=http://host:9000"},
		{"s3://bucket/k?endpoint=https://host/storage/s3/bucket", "write s3://bucket/KEY?endpoint=https://host/storage/s3"},
		{"s3://bucket/k?endpoint=http://bucket.host:9000", "write s3://bucket/KEY?endpoint=http://host:9000"},
		{"s3://bucket/k?endpoint=http://bucket.host:9000&path_style=false", "write s3://bucket/KEY?endpoint=http://host:9000"},
		{"s3://bucket/k?endpoint=https://bucket.s3.eu-west-1.amazonaws.com", "write s3://bucket/KEY?endpoint=https://s3.eu-west-1.amazonaws.com"},
		{"gs://bucket/k?anonymous=true&endpoint=https://bucket.storage.googleapis.com", "write gs://bucket/KEY?endpoint=https://storage.googleapis.com"},
		{"azblob://cont/k?endpoint=https://acct.blob.core.windows.net/cont", "write azblob://cont/KEY?endpoint=https://acct.blob.core.windows.net"},
		{"azblob://cont/k?endpoint=https://blobs.example/cont", "write azblob://cont/KEY?endpoint=https://blobs.example"},
		{"s3://bucket/a//b?region=eu-west-1", "two in a row"},
		{"file://dir/key", "names no host"},
		{"file://", "no directory"},
		{"file:///dir?region=eu-west-1", `unknown parameter "region"; there are if_match`},
		{"mem://name?if_match=false", `unknown parameter "if_match"; mem URLs have none`},
		{"s3://bucket?if_match=no", "if_match is neither true nor false"},
		{"file:///dir/../other", `".."`},
		{"file:///..", `".."`},
		{"file:///dir/%2e%2e", `".."`},
		{"mem://", "has a name"},
		{"mem://name/prefix", "bad store URL: mem://name/prefix: a store in memory has no path"},
	} {
		st, err := storeurl.Open(t.Context(), tt.url)
		if !errors.Is(err, storeurl.ErrURL) || !strings.Contains(err.Error(), tt.says) || st != nil {
			t.Errorf("Open(%q) gives %v, %v, want ErrURL that says %q", tt.url, st, err, tt.says)
		}
	}
}

// Somebody who puts a secret into a URL must not find it in a log.
func TestSecretsAreRefusedAndNotRepeated(t *testing.T) {
	noAWS(t)
	for _, raw := range []string{
		"s3://key:hunter2@bucket/lock",
		"s3://hunter2@bucket/lock",
		"s3://key:hunter2@bucket/100%",
		"file://key:hunter2@localhost/dir/lock",
		"s3://bucket/lock?secret_access_key=hunter2",
		"s3://bucket/lock?region=eu-west-1&endpoint=http://key:hunter2@host",
		"s3://bucket/lock?endpoint=hunter2",
		"gs://hunter2@bucket/lock",
		"azblob://acct:hunter2@container/lock",
		"azblob://container/lock?sig=hunter2",
		"azblob://container/lock?endpoint=https://acct.blob.core.windows.net/?sig=hunter2",
		"https://acct.blob.core.windows.net/container/lock?sig=hunter2",
		"abfss://hunter2@acct.dfs.core.windows.net/lock",
	} {
		_, _, err := storeurl.OpenLock(t.Context(), raw)
		if !errors.Is(err, storeurl.ErrURL) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("OpenLock(%q) gives %v, want ErrURL without the secret", raw, err)
		}
	}
}

func TestOpenS3(t *testing.T) {
	for _, tt := range []struct {
		name string
		url  string
		env  map[string]string
		want string
	}{
		{"the region in the URL", "s3://bucket/a/b?region=eu-west-1", nil, "s3://bucket/a/b"},
		{"a slash at the end", "s3://bucket/a/?region=eu-west-1", nil, "s3://bucket/a"},
		{"the region in the environment", "s3://bucket", map[string]string{"AWS_REGION": "eu-west-1"}, "s3://bucket"},
		{"an endpoint and no region", "s3://bucket?endpoint=http://127.0.0.1:9", nil, "s3://bucket?endpoint=http://127.0.0.1:9"},
		{
			"what a bucket requires", "s3://bucket?region=eu-west-1&content_md5=true&encryption=aws:kms&kms_key=arn:aws:kms:eu-west-1:1:key/k&requester_pays=true", nil,
			"s3://bucket?content_md5=true&encryption=aws:kms&kms_key=arn:aws:kms:eu-west-1:1:key/k&requester_pays=true",
		},
		{"what it does not", "s3://bucket?region=eu-west-1&content_md5=false&requester_pays=false", nil, "s3://bucket"},
		{
			"the endpoint in the environment", "s3://bucket",
			map[string]string{"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"},
			"s3://bucket?endpoint=http://127.0.0.1:9",
		},
		{
			"the endpoint of all services", "s3://bucket",
			map[string]string{"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
			"s3://bucket?endpoint=http://127.0.0.1:9",
		},
		{
			"an endpoint in both", "s3://bucket?endpoint=http://127.0.0.1:9",
			map[string]string{"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:10"},
			"s3://bucket?endpoint=http://127.0.0.1:9",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noAWS(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			st, err := storeurl.Open(t.Context(), tt.url)
			if err != nil {
				t.Fatal(err)
			}
			if got := st.String(); got != tt.want {
				t.Errorf("it is the store %s, want %s", got, tt.want)
			}
		})
	}
}

// There is something to do about each of these, but not to the URL.
func TestOpenS3WithoutSettings(t *testing.T) {
	noAWS(t)
	for _, tt := range []struct{ url, says string }{
		{"s3://bucket", "no region: add region=… to the URL, or set AWS_REGION"},
		{"s3://bucket?profile=nobody", "nobody"},
		{"s3://bucket?region=eu-west-1%0D", "\"eu-west-1\\r\" cannot be a region"},
	} {
		_, err := storeurl.Open(t.Context(), tt.url)
		if err == nil || errors.Is(err, storeurl.ErrURL) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("Open(%q) gives %v, want an error that says %q and is not ErrURL", tt.url, err, tt.says)
		}
	}
}

// TestUnusableSettings: no request could be made with them, and one of them was tried again for ever.
func TestUnusableSettings(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, value, says string }{
		{"AWS_ENDPOINT_URL", "localhost:9000", "AWS_ENDPOINT_URL or the profile's endpoint_url: the endpoint is no URL of the form http://HOST:PORT"},
		{"AWS_ENDPOINT_URL_S3", "127.0.0.1:9000", "AWS_ENDPOINT_URL_S3"},
		{"AWS_ENDPOINT_URL", "http://hunter2:hunter2@host", "user or a password"},
		{"AWS_ENDPOINT_URL", "http://host:9000/bucket", "write s3://bucket/KEY?endpoint=http://host:9000"},
		{"AWS_ENDPOINT_URL", "http://bucket.host:9000", "write s3://bucket/KEY?endpoint=http://host:9000"},
		{"AWS_REGION", "eu-west-1\r", "cannot be a region"},
		{"AWS_CA_BUNDLE", filepath.Join(t.TempDir(), "absent"), "it must be a file of certificates in PEM form"},
		{"AWS_CA_BUNDLE", empty, "AWS_CA_BUNDLE=" + empty + ": "},
		{"AWS_CA_BUNDLE", filepath.Dir(empty), "AWS_CA_BUNDLE=" + filepath.Dir(empty) + ": "},
	} {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			noAWS(t)
			t.Setenv("AWS_REGION", "eu-west-1")
			t.Setenv(tt.name, tt.value)
			st, err := storeurl.Open(t.Context(), "s3://bucket/k")
			if err == nil || st != nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("Open gives %v, %v, want an error that says %q", st, err, tt.says)
			}
		})
	}
}

// TestEndpointBesideTheBucket: what only looks like a bucket that is named twice.
func TestEndpointBesideTheBucket(t *testing.T) {
	noAWS(t)
	noAzure(t)
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sig=s")
	for _, at := range []string{
		"s3://minio?endpoint=http://minio:9000",
		"s3://minio?endpoint=http://minio.example:9000&path_style=true",
		"s3://127?endpoint=http://127.0.0.1:9000",
		"s3://bucket?endpoint=https://host/storage/v1/s3",
		"azblob://locks?endpoint=http://azurite:10000/locks&account=locks",
		"azblob://locks?endpoint=http://azurite:10000/acct",
	} {
		if _, err := storeurl.Open(t.Context(), at); err != nil {
			t.Errorf("Open(%q) gives %v", at, err)
		}
	}
}

func TestProfile(t *testing.T) {
	noAWS(t)
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("[profile test]\nendpoint_url = http://127.0.0.1:9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CONFIG_FILE", file)
	st, err := storeurl.Open(t.Context(), "s3://bucket?profile=test")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := st.String(), "s3://bucket?endpoint=http://127.0.0.1:9"; got != want {
		t.Errorf("it is the store %s, want %s", got, want)
	}
}

// The region, the credentials and the style of a URL reach a server which
// refuses those that are wrong.
func TestOpenLockOnServer(t *testing.T) {
	srv := servers.Start(t, "versitygw")
	bucket := srv.Bucket(t)
	noAWS(t)
	t.Setenv("AWS_ACCESS_KEY_ID", srv.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", srv.SecretKey)
	st, key, err := storeurl.OpenLock(t.Context(), srv.URL(bucket+"/jobs/back%20up"))
	if err != nil {
		t.Fatal(err)
	}
	if key != "jobs/back up" {
		t.Errorf("the key is %q, want %q", key, "jobs/back up")
	}
	checkStore(t, st, key)

	// The URL that a store gives leads to the same store again.
	again, err := storeurl.Open(t.Context(), st.String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = again.Get(t.Context(), key, ""); err != nil {
		t.Errorf("the store of %s: %v", st, err)
	}

	// Without path_style the bucket is looked for in the name of the host,
	// which for an address is none.
	virtual, err := storeurl.Open(t.Context(), "s3://"+bucket+"?path_style=false&endpoint="+url.QueryEscape("http://store.invalid"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = virtual.Get(t.Context(), key, "")
	if err == nil || !strings.Contains(err.Error(), bucket+".store.invalid") {
		t.Errorf("with path_style=false the error is %v, want one of the host %s.store.invalid", err, bucket)
	}
}

func TestOpenLockInDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	path := filepath.ToSlash(dir)
	if runtime.GOOS == "windows" {
		path = "/" + path
	}
	st, key, err := storeurl.OpenLock(t.Context(), (&url.URL{Scheme: "file", Path: path + "/key"}).String())
	if err != nil {
		t.Fatal(err)
	}
	checkStore(t, st, key)
	if _, err = os.Stat(filepath.Join(dir, "key")); err != nil {
		t.Error(err)
	}
	again, err := storeurl.Open(t.Context(), st.String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = again.Get(t.Context(), key, ""); err != nil {
		t.Errorf("the store of %s: %v", st, err)
	}
}

// Opening and looking make no directory, which they used to; the first create does, unless
// the place has to exist.
func TestOpenMakesNothing(t *testing.T) {
	above := t.TempDir()
	path := filepath.ToSlash(above)
	if runtime.GOOS == "windows" {
		path = "/" + path
	}
	raw := (&url.URL{Scheme: "file", Path: path + "/not/there"}).String()
	if st, err := storeurl.OpenExisting(t.Context(), raw); !errors.Is(err, store.ErrNoBucket) || st != nil {
		t.Errorf("OpenExisting gives %v, %v", st, err)
	}
	st, err := storeurl.Open(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = st.Get(t.Context(), "k", ""); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("a look: %v", err)
	}
	entries, err := os.ReadDir(above)
	if err != nil || len(entries) != 0 {
		t.Errorf("they made %v, %v", entries, err)
	}
	checkStore(t, st, "k")
	if st, err = storeurl.OpenExisting(t.Context(), raw); err != nil {
		t.Fatal(err)
	}
	checkStore(t, st, "another")
}

func TestOpenMem(t *testing.T) {
	name := "mem://" + rand.Text() // it stays for the process
	st, key, err := storeurl.OpenLock(t.Context(), name+"/jobs/backup")
	if err != nil {
		t.Fatal(err)
	}
	checkStore(t, st, key)
	same, err := storeurl.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = same.Get(t.Context(), key, ""); err != nil {
		t.Errorf("another store of the name: %v", err)
	}
	other, err := storeurl.Open(t.Context(), name+"-other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = other.Get(t.Context(), key, ""); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("a store of another name gives %v, want ErrNotExist", err)
	}
}

// checkStore checks that st is a store which works, by writing the key.
func checkStore(t *testing.T, st store.Store, key string) {
	t.Helper()
	if _, err := st.Put(t.Context(), key, []byte("body"), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	object, err := st.Get(t.Context(), key, "")
	if err != nil || string(object.Body) != "body" {
		t.Errorf("Get gives %v, %v", object, err)
	}
}

// noAWS takes away the AWS settings of the user that runs the tests.
func noAWS(t *testing.T) {
	t.Helper()
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "") // which also brings it back afterwards
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// labelled runs f, and counts the goroutines that f has left behind, and those that they have: goroutines
// inherit labels, so what other tests do does not matter.
func labelled(t *testing.T, f func(ctx context.Context)) (left func() int) {
	t.Helper()
	pprof.Do(t.Context(), pprof.Labels("of", t.Name()), f)
	mark := fmt.Sprintf("%q:%q", "of", t.Name())
	return func() (n int) {
		var all bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
			t.Fatal(err)
		}
		for stack := range strings.SplitSeq(all.String(), "\n\n") {
			var same int
			if _, err := fmt.Sscanf(strings.TrimSpace(stack), "%d @", &same); err == nil && strings.Contains(stack, mark) {
				n += same
			}
		}
		return n
	}
}

// gone waits until no goroutine is left.
func gone(t *testing.T, left func() int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); left() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left", left())
		}
	}
}

func openCloser(ctx context.Context, t *testing.T, rawurl string) (store.Store, io.Closer) {
	t.Helper()
	st, err := storeurl.Open(ctx, rawurl)
	if err != nil {
		t.Fatal(err)
	}
	c, ok := st.(io.Closer)
	if !ok {
		t.Fatalf("the store %v is no io.Closer", st)
	}
	return st, c
}

// TestCloseLeavesNothing: a store that was closed has no connection and no goroutine any more, also
// one that was used after that and closed again.
func TestCloseLeavesNothing(t *testing.T) {
	t.Run("s3", func(t *testing.T) {
		srv := servers.Start(t, "gofakes3")
		noAWS(t)
		t.Setenv("AWS_ACCESS_KEY_ID", srv.AccessKey)
		t.Setenv("AWS_SECRET_ACCESS_KEY", srv.SecretKey)
		closeLeavesNothing(t, srv.URL(srv.Bucket(t)))
	})
	t.Run("gs", func(t *testing.T) {
		srv := servers.StartGCS(t)
		noGoogle(t)
		closeLeavesNothing(t, srv.GCSURL(srv.GCSBucket(t)))
	})
	t.Run("azblob", func(t *testing.T) {
		srv := servers.StartAzurite(t)
		noAzure(t)
		t.Setenv("AZURE_STORAGE_KEY", srv.Key)
		closeLeavesNothing(t, srv.URL(srv.Container(t)))
	})
}

func closeLeavesNothing(t *testing.T, at string) {
	t.Helper()
	var closer io.Closer
	var st store.Store
	left := labelled(t, func(ctx context.Context) {
		st, closer = openCloser(ctx, t, at)
		if _, err := st.Put(ctx, "jobs/backup", []byte("a"), store.IfAbsent()); err != nil {
			t.Error(err)
		}
	})
	if left() == 0 {
		t.Fatal("no goroutine was counted though a connection is kept")
	}
	for range 2 {
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
		gone(t, left)
	}
	again := labelled(t, func(ctx context.Context) {
		if _, err := st.Get(ctx, "jobs/backup", ""); err != nil {
			t.Errorf("a closed store is asked: %v", err)
		}
	})
	if again() == 0 {
		t.Error("no goroutine was counted though a connection was opened anew")
	}
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, again)
}

// TestCloseCutsNothingOff: a request that is under way when the store is closed is answered, and its connection
// is closed then.
func TestCloseCutsNothingOff(t *testing.T) {
	asked, answer := make(chan bool), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		<-answer
		w.Header().Set("ETag", `"1"`)
		_, _ = w.Write([]byte("body"))
	}))
	t.Cleanup(server.Close)
	noAWS(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	var closer io.Closer
	got := make(chan error)
	left := labelled(t, func(ctx context.Context) {
		var st store.Store
		st, closer = openCloser(ctx, t, "s3://bucket?endpoint="+url.QueryEscape(server.URL))
		go func() {
			_, err := st.Get(ctx, "key", "")
			got <- err
		}()
		<-asked
	})
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	answer <- true
	if err := <-got; err != nil {
		t.Errorf("a request that was under way: %v", err)
	}
	gone(t, left)
}

// TestOtherStoresNeedNoClosing: they keep nothing.
func TestOtherStoresNeedNoClosing(t *testing.T) {
	for _, at := range []string{"mem://name", "file://" + t.TempDir()} {
		st, err := storeurl.Open(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := st.(io.Closer); ok {
			t.Errorf("%v is an io.Closer", st)
		}
	}
}

// without takes away variables of the user that runs the tests.
func without(t *testing.T, prefixes ...string) {
	t.Helper()
	for _, setting := range os.Environ() {
		name, _, _ := strings.Cut(setting, "=")
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "") // which also brings it back afterwards
				if err := os.Unsetenv(name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// noGoogle takes away the settings of Google's libraries, and gives the directory that is the user's home.
func noGoogle(t *testing.T) (home string) {
	t.Helper()
	without(t, "GOOGLE_", "STORAGE_EMULATOR_HOST", "GCE_METADATA_")
	home = t.TempDir()
	for _, name := range []string{"HOME", "APPDATA", "USERPROFILE"} {
		t.Setenv(name, home)
	}
	return home
}

// noAzure takes away the settings of Azure's libraries.
func noAzure(t *testing.T) {
	t.Helper()
	without(t, "AZURE_", "IDENTITY_", "MSI_", "IMDS_")
}

// someKey is in the form of an account's key.
const someKey = "c29tZSBrZXk="

const connection = "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=" + someKey + ";EndpointSuffix=core.windows.net"

func TestOpenClouds(t *testing.T) {
	for _, tt := range []struct {
		name string
		url  string
		env  map[string]string
		want string
	}{
		{"a bucket of Google's that is open to everybody", "gs://bucket/a/b?anonymous=true", nil, "gs://bucket/a/b"},
		{"credentials that are sought later", "gs://bucket", nil, "gs://bucket"},
		{"who pays", "gs://bucket/?anonymous=true&user_project=p", nil, "gs://bucket?user_project=p"},
		{"an emulator in the URL", "gs://bucket?endpoint=http://127.0.0.1:9", nil, "gs://bucket?endpoint=http://127.0.0.1:9"},
		{"an emulator in the environment", "gs://bucket", map[string]string{"STORAGE_EMULATOR_HOST": "127.0.0.1:9"}, "gs://bucket?endpoint=http://127.0.0.1:9"},
		{"an emulator by its URL", "gs://bucket", map[string]string{"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9/storage/v1/"}, "gs://bucket?endpoint=http://127.0.0.1:9"},
		{
			"an emulator in both", "gs://bucket?endpoint=http://127.0.0.1:10",
			map[string]string{"STORAGE_EMULATOR_HOST": "127.0.0.1:9"},
			"gs://bucket?endpoint=http://127.0.0.1:10",
		},
		{"a private endpoint", "gs://bucket?endpoint=https://storage.example", nil, "gs://bucket?endpoint=https://storage.example"},

		{"an identity", "azblob://container/a/b?account=acct", nil, "azblob://container/a/b?account=acct"},
		{"the account in the environment", "azblob://container/a/", map[string]string{"AZURE_STORAGE_ACCOUNT": "acct"}, "azblob://container/a?account=acct"},
		{"an identity for another account than the environment's", "azblob://container?account=other", map[string]string{"AZURE_STORAGE_ACCOUNT": "acct"}, "azblob://container?account=other"},
		{"a key", "azblob://container?account=acct", map[string]string{"AZURE_STORAGE_KEY": someKey}, "azblob://container?account=acct"},
		{"a SAS", "azblob://container?account=acct", map[string]string{"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=hunter2"}, "azblob://container?account=acct"},
		{
			"the account of an emulator by its path", "azblob://container?endpoint=http://127.0.0.1:9/acct/",
			map[string]string{"AZURE_STORAGE_KEY": someKey},
			"azblob://container?endpoint=http://127.0.0.1:9/acct",
		},
		{
			"the account of another cloud by its host", "azblob://container?endpoint=https://acct.blob.core.chinacloudapi.cn",
			map[string]string{"AZURE_STORAGE_KEY": someKey},
			"azblob://container?endpoint=https://acct.blob.core.chinacloudapi.cn",
		},
		{
			"a name of one's own", "azblob://container?account=acct&endpoint=https://blobs.example",
			map[string]string{"AZURE_STORAGE_KEY": someKey},
			"azblob://container?account=acct&endpoint=https://blobs.example",
		},
		{"a connection string", "azblob://container/a", map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection}, "azblob://container/a?account=acct"},
		{
			"a connection string before a key", "azblob://container",
			map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection, "AZURE_STORAGE_KEY": "no key"},
			"azblob://container?account=acct",
		},
		{
			"a connection string of the same account", "azblob://container?account=acct",
			map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection, "AZURE_STORAGE_ACCOUNT": "acct"},
			"azblob://container?account=acct",
		},
		{
			"a connection string with a SAS", "azblob://container?endpoint=http://127.0.0.1:9/acct",
			map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "BlobEndpoint=http://127.0.0.1:9/acct;SharedAccessSignature=sv=1&sig=hunter2"},
			"azblob://container?endpoint=http://127.0.0.1:9/acct",
		},
		{"a key because a key is wanted", "azblob://container?account=acct", map[string]string{"AZURE_STORAGE_KEY": someKey, "AZURE_STORAGE_AUTH_MODE": "key"}, "azblob://container?account=acct"},
		{"a SAS because a key is wanted", "azblob://container?account=acct", map[string]string{"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=hunter2", "AZURE_STORAGE_AUTH_MODE": "key"}, "azblob://container?account=acct"},
		{"a connection string because a key is wanted", "azblob://container", map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection, "AZURE_STORAGE_AUTH_MODE": "key"}, "azblob://container?account=acct"},
		{
			"an identity though there is a key", "azblob://container?account=other",
			map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection, "AZURE_STORAGE_AUTH_MODE": "login"},
			"azblob://container?account=other",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noGoogle(t)
			noAzure(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			st, err := storeurl.Open(t.Context(), tt.url)
			if err != nil {
				t.Fatal(err)
			}
			if got := st.String(); got != tt.want {
				t.Errorf("it is the store %s, want %s", got, tt.want)
			}
			// The URL that a store gives leads to the same store again.
			if tt.env["AZURE_STORAGE_ACCOUNT"] == "acct" && strings.Contains(tt.want, "other") {
				return
			}
			again, err := storeurl.Open(t.Context(), tt.want)
			if err != nil || again.String() != tt.want {
				t.Errorf("%s opens %v, %v", tt.want, again, err)
			}
		})
	}
}

// There is something to do about each of these, but not to the URL; and none of the secrets is shown.
func TestOpenCloudsWithoutSettings(t *testing.T) {
	for _, tt := range []struct {
		url, says string
		env       map[string]string
	}{
		{"gs://bucket", "no such file", map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": filepath.Join(t.TempDir(), "absent")}},
		{"gs://bucket", "STORAGE_EMULATOR_HOST is neither", map[string]string{"STORAGE_EMULATOR_HOST": "ftp://x"}},
		{"gs://bucket", "STORAGE_EMULATOR_HOST is neither", map[string]string{"STORAGE_EMULATOR_HOST": "http://%zz"}},
		{"gs://bucket", "STORAGE_EMULATOR_HOST is neither", map[string]string{"STORAGE_EMULATOR_HOST": "http:///x"}},
		{"azblob://container", "no account: add account=… to the URL, or set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING", nil},
		{"azblob://container", "AZURE_STORAGE_ACCOUNT is no name", map[string]string{"AZURE_STORAGE_ACCOUNT": "acct.example/"}},
		{"azblob://container?account=acct", "AZURE_STORAGE_KEY is no key", map[string]string{"AZURE_STORAGE_KEY": "hunter2!"}},
		{"azblob://container?account=acct", "AZURE_STORAGE_CONNECTION_STRING", map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=acct;AccountKey=hunter2!"}},
		{"azblob://container?account=acct", "AZURE_STORAGE_CONNECTION_STRING", map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "hunter2"}},
		{"azblob://container?account=other", "the account of the URL is other", map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection}},
		{"azblob://container?endpoint=http://127.0.0.1:9/acct", "the endpoint of the URL is http://127.0.0.1:9/acct", map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection}},
		{"azblob://container", "AZURE_STORAGE_ACCOUNT is other", map[string]string{"AZURE_STORAGE_CONNECTION_STRING": connection, "AZURE_STORAGE_ACCOUNT": "other"}},
		{"azblob://container", "has credentials for acct, and AZURE_STORAGE_ACCOUNT is other", map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=acct;AccountKey=" + someKey + ";EndpointSuffix=core.chinacloudapi.cn", "AZURE_STORAGE_ACCOUNT": "other"}},
		{"azblob://container?account=other", "has credentials for acct, and the account of the URL is other", map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "BlobEndpoint=https://acct.blob.core.windows.net;SharedAccessSignature=sv=1&sig=hunter2"}},
		{"azblob://container?account=other", `names the account "other"`, map[string]string{"AZURE_STORAGE_KEY": someKey, "AZURE_STORAGE_ACCOUNT": "acct"}},
		{"azblob://container?account=other", `names the account "other"`, map[string]string{"AZURE_STORAGE_SAS_TOKEN": "sig=hunter2", "AZURE_STORAGE_ACCOUNT": "acct"}},
		{"azblob://container?endpoint=https://blobs.example", "does not tell the account of the key", map[string]string{"AZURE_STORAGE_KEY": someKey}},
		{"azblob://container?endpoint=http://127.0.0.1:9/acct", "neither AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY nor AZURE_STORAGE_SAS_TOKEN is set", nil},
		{"azblob://container?account=acct", "AZURE_STORAGE_AUTH_MODE is key, and there is none", map[string]string{"AZURE_STORAGE_AUTH_MODE": "key"}},
		{"azblob://container?account=acct", "neither key nor login", map[string]string{"AZURE_STORAGE_AUTH_MODE": "hunter2"}},
		{"azblob://container?account=acct", "AZURE_TOKEN_CREDENTIALS", map[string]string{"AZURE_TOKEN_CREDENTIALS": "none"}},
	} {
		t.Run(tt.says, func(t *testing.T) {
			noGoogle(t)
			noAzure(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			st, err := storeurl.Open(t.Context(), tt.url)
			if err == nil || st != nil || errors.Is(err, storeurl.ErrURL) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Open(%q) gives %v, %v, want an error that says %q and is not ErrURL", tt.url, st, err, tt.says)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), someKey)) {
				t.Errorf("it shows a secret: %v", err)
			}
		})
	}
}

// A file that names a program, as the console of Google offers it too, has no credentials in it: the library panics when
// it is asked for a token.
func TestGoogleFiles(t *testing.T) {
	home := noGoogle(t)
	dir := filepath.Join(home, ".config", "gcloud")
	if _, err := os.UserConfigDir(); err == nil && filepath.Separator == '\\' {
		dir = filepath.Join(home, "gcloud")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "application_default_credentials.json")
	for _, tt := range []struct{ text, says string }{
		{`{"installed":{"client_id":"id","client_secret":"hunter2","redirect_uris":["http://localhost"]}}`, "name a program to Google"},
		{`{"type":"nothing","private_key":"hunter2"}`, "nothing"},
		{`{}`, "type"},
		{`hunter2`, "invalid"},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := storeurl.Open(t.Context(), "gs://bucket")
		if err == nil || st != nil || errors.Is(err, storeurl.ErrURL) || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hunter2") ||
			!strings.HasPrefix(err.Error(), "open gs://bucket: the credentials in "+file+" cannot be used: ") {
			t.Errorf("with %s: %v, %v, want an error that names the file and says %q", tt.text, st, err, tt.says)
		}
	}
}

func TestOpenLockOnClouds(t *testing.T) {
	t.Run("gs", func(t *testing.T) {
		srv := servers.StartGCS(t)
		noGoogle(t)
		opensLock(t, srv.GCSURL(srv.GCSBucket(t)+"/jobs/back%20up"))
	})
	t.Run("azblob", func(t *testing.T) {
		srv := servers.StartAzurite(t)
		noAzure(t)
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", srv.ConnectionString())
		opensLock(t, srv.URL(srv.Container(t)+"/jobs/back%20up"))
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
		t.Setenv("AZURE_STORAGE_KEY", srv.Key)
		opensLock(t, srv.URL(srv.Container(t)+"/jobs/back%20up"))
	})
}

// opensLock checks that a lock's URL leads to a store that works, and its URL to the same.
func opensLock(t *testing.T, rawurl string) {
	t.Helper()
	st, key, err := storeurl.OpenLock(t.Context(), rawurl)
	if err != nil {
		t.Fatal(err)
	}
	if key != "jobs/back up" {
		t.Errorf("the key is %q", key)
	}
	checkStore(t, st, key)
	again, err := storeurl.Open(t.Context(), st.String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = again.Get(t.Context(), key, ""); err != nil {
		t.Errorf("the store of %s: %v", st, err)
	}
}

// Tokens go to nobody without need: an endpoint of http gets none.
func TestNoTokenWithoutTLS(t *testing.T) {
	noGoogle(t)
	seen := make(chan http.Header, 1)
	at := served(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		w.WriteHeader(http.StatusUnauthorized)
	})
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "absent")) // which nobody looks for
	st, err := storeurl.Open(t.Context(), "gs://bucket?endpoint="+url.QueryEscape(at))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = st.Get(t.Context(), "key", ""); !errors.Is(err, store.ErrDenied) {
		t.Errorf("the error is %v", err)
	}
	if h := <-seen; h.Get("Authorization") != "" {
		t.Errorf("it got %v", h)
	}
}

// served is the address of a server for the time of the test.
func served(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	return srv.URL
}
