package storeurl_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

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
