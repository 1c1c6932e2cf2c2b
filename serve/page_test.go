package serve_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store/memstore"
)

// The page is served with a policy that lets it load nothing but itself, and is sent once.
func TestPage(t *testing.T) {
	t.Parallel()
	s := made(t, memstore.New(), nil)
	get := func(method, path, tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	for path, kind := range map[string]string{
		"/ui/": "text/html; charset=utf-8", "/ui/style.css": "text/css; charset=utf-8", "/ui/icon.svg": "image/svg+xml",
		"/ui/page.js": "text/javascript; charset=utf-8", "/ui/known.js": "text/javascript; charset=utf-8",
	} {
		w := get("GET", path, "")
		h := w.Header()
		if w.Code != 200 || w.Body.Len() < 100 {
			t.Errorf("%s: %d %v", path, w.Code, h)
		}
		hash := sha256.Sum256(w.Body.Bytes())
		if want := (http.Header{
			"Cache-Control": {"no-cache"}, "Content-Length": {strconv.Itoa(w.Body.Len())}, "Content-Type": {kind}, "Cross-Origin-Opener-Policy": {"same-origin"},
			"Content-Security-Policy": {"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
				"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"},
			"Cross-Origin-Resource-Policy": {"same-origin"}, "Etag": {fmt.Sprintf("%q", hex.EncodeToString(hash[:12]))}, "Referrer-Policy": {"no-referrer"},
			"X-Content-Type-Options": {"nosniff"}, "X-Frame-Options": {"DENY"},
		}); !reflect.DeepEqual(h, want) {
			t.Errorf("%s: %v, want %v", path, h, want)
		}
		tag := h.Get("ETag")
		for _, given := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			if again := get("GET", path, given); again.Code != 304 || again.Body.Len() > 0 || again.Header().Get("ETag") != tag {
				t.Errorf("%s with %s: %d %q", path, given, again.Code, again.Body)
			}
		}
		if other := get("GET", path, `"other"`); other.Code != 200 || other.Body.String() != w.Body.String() {
			t.Errorf("%s with another tag: %d", path, other.Code)
		}
		if head := get("HEAD", path, ""); head.Code != 200 || head.Body.Len() > 0 || head.Header().Get("Content-Length") != h.Get("Content-Length") {
			t.Errorf("HEAD %s: %d %v", path, head.Code, head.Header())
		}
	}
	refused := func(method, path string, code int, detail, allow string) {
		t.Helper()
		a := ask(t, s, method, path, "")
		if a.code != code || a.Detail != detail || a.header.Get("Allow") != allow || a.header.Get("Location") != "" || a.header.Get("Content-Security-Policy") != "" {
			t.Errorf("%s %s: %d %v %s", method, path, a.code, a.header, a.body)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		for _, path := range []string{"/", "/ui", "/ui/", "/ui/page.js", "/ui/none"} {
			refused(method, path, 405, method+" is not among the methods of the page: GET, HEAD", "GET, HEAD")
		}
	}
	for _, path := range []string{"/", "/ui"} {
		for _, method := range []string{"GET", "HEAD"} {
			if w := get(method, path, ""); w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != "ui/" || w.Body.Len() > 0 || w.Header().Get("Content-Type") != "" {
				t.Errorf("%s %s: %d %v", method, path, w.Code, w.Header())
			}
		}
	}
	for _, path := range []string{"/ui/index.html", "/ui/none", "/ui/../server.go", "/ui/%2e%2e/server.go", "/ui//"} {
		refused("GET", path, 404, "there is no such part of the page: it is at /ui/", "")
	}
	m := ask(t, s, "GET", "/metrics", "").body
	for _, want := range []string{`answers_total{status="200"} 15`, `answers_total{status="304"} 20`, `answers_total{status="307"} 4`, `answers_total{status="404"} 5`, `answers_total{status="405"} 20`} {
		if !strings.Contains(m, "leasehold_serve_"+want+"\n") {
			t.Errorf("no %s in\n%s", want, m)
		}
	}
}

// Nothing in the page would need a weaker policy, or names another place to load from.
func TestPageIsItsOwn(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("ui")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	elsewhere := regexp.MustCompile(`(https?:)?//[a-z0-9.-]+\.[a-z]+|@import|\burl\(`)
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script>|javascript:`)
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|\beval\(|new Function`)
	for _, f := range files {
		text, err := os.ReadFile("ui/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		body := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
		for what, pattern := range map[string]*regexp.Regexp{"another place": elsewhere, "something inline": inline, "markup out of text": markup} {
			if what == "something inline" && !strings.HasSuffix(f.Name(), ".html") {
				continue
			}
			if found := pattern.FindString(body); found != "" {
				t.Errorf("%s has %s: %q", f.Name(), what, found)
			}
		}
	}
}

// known evaluates expressions, each where known.js has just been read, as the page does.
func known(t *testing.T, expressions []string) (values []string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node here")
	}
	const script = `const vm = require('vm'), fs = require('fs');
const fresh = () => vm.createContext({ performance, URL, Intl });
const known = fs.readFileSync('ui/known.js', 'utf8');
process.stdout.write(JSON.stringify(process.argv.slice(1).map(e => vm.runInContext(known + ';' + e, fresh()))));`
	out, err := exec.CommandContext(t.Context(), node, append([]string{"-e", script, "--"}, expressions...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(out, &values); err != nil || len(values) != len(expressions) {
		t.Fatalf("%d values of %d: %v\n%s", len(values), len(expressions), err, out)
	}
	return values
}

// What the page says and asks: of an address with a password in it, of more objects than a look reads, and of what was
// broken.
func TestPageSays(t *testing.T) {
	t.Parallel()
	says := map[string]string{
		`addressOf('v1/events', 'http://me:secret@127.0.0.1:4041/ui/').href`: "http://127.0.0.1:4041/v1/events",
		`addressOf('v1/events', 'https://proxy/at/ui/#key=x').href`:          "https://proxy/at/v1/events",
		`missing()`:                        "",
		`seen = { cut: false }; missing()`: "",
		`seen = { cut: true }; for (const k of ['a', 'b/\u{1f512}', 'b/\uff5e', 'b']) objects.set(k, {}); missing()`: "Only the first 4 objects can be seen here: what comes after b/🔒 is missing, also from a search. " +
			"A larger --limit of leasehold serve shows more, or a prefix with fewer objects.",
		`broken({ semaphore: { size: 3 } }, 'gpu', '7', true)`:  "The lease of gpu with the token 7 was freed.",
		`broken({ semaphore: { size: 3 } }, 'gpu', '7', false)`: "The lease of gpu with the token 7 was free already.",
		`broken({ semaphore: { size: 1 } }, 'fair', '7', true)`: "fair was freed.",
		`broken({}, 'job', '7', true)`:                          "job was freed.",
		`broken(undefined, 'job', '7', false)`:                  "job was free already.",
	}
	expressions := slices.Sorted(maps.Keys(says))
	for i, got := range known(t, expressions) {
		if want := says[expressions[i]]; got != want {
			t.Errorf("%s is %q, want %q", expressions[i], got, want)
		}
	}
	script, err := os.ReadFile("ui/page.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, used := range []string{"addressOf(path, document.baseURI)", "say($('missing'), lacks)", "say($('break-said'), broken(before, key, token, freed))"} {
		if !strings.Contains(string(script), used) {
			t.Errorf("the page does not %s", used)
		}
	}
}
