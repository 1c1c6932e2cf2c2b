package storeurl_test

import (
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

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
		{"gs://bucket?region=a", `unknown parameter "region"; there are endpoint, user_project, anonymous`},
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
		{"azblob://container?sas=hunter2", `unknown parameter "sas"; there are account, endpoint`},
		{"s3:bucket/key", "write s3://"},
		{"file:dir/key", "write file:// and an absolute path"},
		{"s3:///key", "there is no bucket"},
		{"s3://bucket:9000/key", "a bucket has no port"},
		{"s3://bucket/100%", "%25"},
		{"s3://bucket/a#b", "%23"},
		{"s3://bucket/a#", "%23"},
		{"s3://bucket?zone=1", `unknown parameter "zone"; there are region, endpoint, path_style, profile, unquoted_etags, content_md5, encryption, kms_key, requester_pays`},
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
		{"file:///dir?region=eu-west-1", `unknown parameter "region"; file URLs have none`},
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
