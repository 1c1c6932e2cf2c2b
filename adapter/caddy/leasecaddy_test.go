package leasecaddy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile" // the adapter of Caddyfiles
	_ "github.com/caddyserver/caddy/v2/modules/caddypki"          // what issues certificates without a network
	_ "github.com/caddyserver/caddy/v2/modules/caddytls"
	"github.com/caddyserver/certmagic"
	"go.uber.org/goleak"

	"github.com/leasehold/leasehold"
	leasecaddy "github.com/leasehold/leasehold/adapter/caddy"
	leasecertmagic "github.com/leasehold/leasehold/adapter/certmagic"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, exceptions...) }

// exceptions are goroutines that are kept for as long as the process runs: by Caddy, and by what starts servers.
var exceptions = []goleak.Option{
	goleak.IgnoreTopFunction("github.com/leasehold/leasehold/internal/servers.keepThread"),
}

// load runs Caddy in this process, until the test ends.
func load(t *testing.T, config string) {
	t.Helper()
	t.Cleanup(func() { _ = caddy.Stop() })
	if err := caddy.Load([]byte(config), true); err != nil {
		t.Fatal(err)
	}
}

// storage is what Caddy uses.
func storage(t *testing.T) *leasecertmagic.Storage {
	t.Helper()
	s, ok := caddy.ActiveContext().Storage().(*leasecertmagic.Storage)
	if !ok {
		t.Fatalf("Caddy has the storage %v", caddy.ActiveContext().Storage())
	}
	return s
}

const plain = `{"admin": {"disabled": true, "config": {"persist": false}}, "storage": {"module": "leasehold", %s}}`

// TestJSON: Caddy keeps its authority and a certificate in the store that a JSON configuration names.
func TestJSON(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LEASECADDY_DIR", filepath.ToSlash(dir))
	load(t, `{
		"admin": {"disabled": true, "config": {"persist": false}},
		"storage": {"module": "leasehold", "url": "file://{env.LEASECADDY_DIR}", "ttl": "20s"},
		"apps": {
			"pki": {"certificate_authorities": {"local": {"install_trust": false}}},
			"tls": {
				"certificates": {"automate": ["example.com", "*.example.com"]},
				"automation": {"policies": [{"issuers": [{"module": "internal"}]}]}
			}
		}
	}`)
	st, err := storeurl.Open(t.Context(), "file://"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"values/pki/authorities/local/root.key="}
	for _, name := range []string{"example.com", "wildcard_.example.com"} {
		want = append(want, "values/certificates/local/"+name+"/"+name+".json=") // the last of it
	}
	for _, key := range want {
		for {
			_, err = st.Get(t.Context(), key, "")
			if err == nil {
				break
			}
			if !errors.Is(err, store.ErrNotExist) {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond) // until it is there, or the test's time is up
		}
	}
	keys, err := storage(t).List(t.Context(), "certificates/local", false)
	if err != nil || len(keys) != 2 {
		t.Error(keys, err)
	}
}

// TestCaddyfile: a Caddyfile says the same as JSON.
func TestCaddyfile(t *testing.T) {
	for _, c := range []struct {
		storage, want, problem string
	}{
		{"leasehold mem://caddyfile", `"storage":{"module":"leasehold","url":"mem://caddyfile"}`, ""},
		{"leasehold mem://caddyfile {\nttl 1m\n}", `"storage":{"module":"leasehold","ttl":60000000000,"url":"mem://caddyfile"}`, ""},
		{"leasehold s3://b/p?endpoint=http://127.0.0.1:1&path_style=true", `"url":"s3://b/p?endpoint=http://127.0.0.1:1\u0026path_style=true"`, ""},
		{"leasehold", "", "takes one argument"},
		{"leasehold a b", "", "takes one argument"},
		{"leasehold mem://x {\nttl\n}", "", "ttl"},
		{"leasehold mem://x {\nttl soon\n}", "", "soon"},
		{"leasehold mem://x {\ncolour red\n}", "", `no option "colour"`},
	} {
		config := fmt.Sprintf("{\nadmin off\npersist_config off\nstorage %s\n}\n", c.storage)
		got, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), nil)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v, want %s", c.storage, err, c.problem)
			}
			continue
		}
		if err != nil || !strings.Contains(string(got), c.want) {
			t.Errorf("%s: %s, %v, want %s", c.storage, got, err, c.want)
			continue
		}
		if strings.Contains(c.storage, "s3://") {
			continue // it would be asked for credentials
		}
		load(t, string(got))
		if s := storage(t).String(); !strings.Contains(s, "mem://") {
			t.Error(s)
		}
	}
}

// TestBadConfigurations: each is refused when it is loaded, with the reason.
func TestBadConfigurations(t *testing.T) {
	for values, want := range map[string]string{
		`"url": ""`:                                 "URL",
		`"ttl": "15s"`:                              "URL",
		`"url": "bucket"`:                           "scheme",
		`"url": "ftp://bucket"`:                     "unknown scheme",
		`"url": "mem://x", "ttl": "1ms"`:            "TTL",
		`"url": "mem://x", "colour": "red"`:         "colour",
		`"url": "{env.LEASECADDY_NOT_SET}"`:         "LEASECADDY_NOT_SET",
		`"url": "s3://KEY:SECRET@bucket"`:           "credentials",
		`"url": "s3://bucket?region=x&region=y"`:    "region",
		`"url": "azblob://abc/b?account=a&foo=bar"`: "foo",
		`"url": "file://relative"`:                  "host",
	} {
		err := caddy.Load(fmt.Appendf(nil, plain, values), true)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v, want %s", values, err, want)
		}
	}
	var s leasecaddy.Storage
	if err := s.Validate(); err == nil {
		t.Error("a storage that was not provisioned is valid")
	}
	if got, err := s.CertMagicStorage(); err == nil || got != nil {
		t.Error(got, err)
	}
	if err := s.Cleanup(); err != nil {
		t.Error(err)
	}
}

// TestReload: a new configuration of the same store goes on with the storage, and what is locked in it. The last one closes it.
func TestReload(t *testing.T) {
	config := fmt.Sprintf(plain, `"url": "mem://reload"`)
	load(t, config)
	first := storage(t)
	if err := first.Lock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	load(t, config)
	if storage(t) != first {
		t.Error("another storage of the same store")
	}
	if ok, err := storage(t).TryLock(t.Context(), "x"); ok || err != nil {
		t.Error(ok, err)
	}
	if err := first.Unlock(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	load(t, fmt.Sprintf(plain, `"url": "mem://reload", "ttl": "20s"`))
	if storage(t) == first {
		t.Error("the storage of another TTL is the same")
	}
	if err := first.Lock(t.Context(), "x"); !errors.Is(err, leasehold.ErrClosed) {
		t.Error(err)
	}
}

// TestRounds: the storage that Caddy gets keeps others out.
func TestRounds(t *testing.T) {
	server := servers.Start(t, "minio") // for its credentials, which no URL has
	for _, variable := range server.Env() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	adaptertest.Rounds(t, func(t testing.TB, st store.Store, _ string, work func(ctx context.Context)) (stop func()) {
		t.Helper()
		ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
		s := &leasecaddy.Storage{URL: st.String(), TTL: caddy.Duration(adaptertest.TTL)}
		var got certmagic.Storage
		err := s.Provision(ctx)
		if err == nil {
			got, err = s.CertMagicStorage()
		}
		locker, ok := got.(*leasecertmagic.Storage)
		if err != nil || !ok {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				if locker.Lock(ctx, "contended") != nil {
					continue
				}
				if lease, err := locker.Lease("contended"); err == nil {
					work(lease.Context())
				}
				_ = locker.Unlock(ctx, "contended")
			}
		}()
		return func() {
			cancel()
			<-done
			if err := s.Cleanup(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRow: Caddy's own tests, of whole servers and of TLS, pass when its storage in a directory, also the default one, is
// this module.
func TestRow(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	const module = "github.com/caddyserver/caddy/v2"
	const top, storage = "../../", "../../modules/filestorage/"
	row := adaptertest.Row{Module: module, LeftOut: map[string]string{
		"TestReverseProxyRequestBodyTimeout": "it stores nothing, and its time-out of 3 s fails on a busy machine",
	}}
	for _, pkg := range []string{"caddytest/integration", "modules/caddytls"} {
		results := adaptertest.Upstream{
			Package: module + "/" + pkg, Dir: "testdata/upstream", Run: "^Test", LeftOut: row.LeftOut,
			Files: map[string]string{
				storage + "ours.go":                        "testdata/filestorage.go",
				top + "caddytest/integration/main_test.go": "testdata/main.go",
			},
			Edits: []adaptertest.Edit{{
				File: storage + "filestorage.go", Old: "return &certmagic.FileStorage{Path: s.Root}, nil", New: "return s.ours.CertMagicStorage()",
			}, {
				File: storage + "filestorage.go", Old: "`json:\"root,omitempty\"`\n", New: "`json:\"root,omitempty\"`\n\n\tours ours\n",
			}, {
				File: top + "caddy.go", Old: "\t\tif newCfg.StorageRaw != nil {\n",
				New: "\t\tif newCfg.StorageRaw == nil {\n" +
					"\t\t\tnewCfg.StorageRaw = fmt.Appendf(nil, `{\"module\": \"file_system\", \"root\": %q}`, AppDataDir())\n\t\t}\n" +
					"\t\tif newCfg.StorageRaw != nil {\n",
			}, {
				// Without its certificates, which it finds by the path of its source, each test skips itself.
				File: top + "caddytest/caddytest.go", Old: "\treturn path.Dir(filename)\n",
				New: "\tfilename, _ = os.Getwd()\n\treturn path.Dir(filename)\n",
			}},
		}.Test(t)
		for _, test := range results.Ran {
			row.Ran = append(row.Ran, pkg+"."+test)
		}
		row.Passed += results.Passed
	}
	if _, err := os.Stat(filepath.Join(dir, "caddy", "values")); err != nil {
		t.Errorf("the tests have kept nothing in the storage: %v", err)
	}
	row.Check(t)
}
