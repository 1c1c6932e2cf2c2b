package serve_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
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
		"/ui/": "text/html", "/ui/style.css": "text/css", "/ui/page.js": "text/javascript", "/ui/known.js": "text/javascript", "/ui/icon.svg": "image/svg+xml",
	} {
		w := get("GET", path, "")
		h := w.Header()
		if w.Code != 200 || !strings.HasPrefix(h.Get("Content-Type"), kind) || w.Body.Len() < 100 || h.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d %v", path, w.Code, h)
		}
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self';") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") ||
			h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s may do too much: %v", path, h)
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
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			if w := get(method, path, ""); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d %v", method, path, w.Code, w.Header())
			}
		}
	}
	for _, path := range []string{"/", "/ui"} {
		if w := get("GET", path, ""); w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != "ui/" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		wants(t, path, ask(t, s, "POST", path, ""), 405, "method")
	}
	for _, path := range []string{"/ui/index.html", "/ui/none", "/ui/../server.go", "/ui/%2e%2e/server.go", "/ui//"} {
		wants(t, path, ask(t, s, "GET", path, ""), 404, "unknown")
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

// known evaluates an expression where known.js has been read, as the page does.
func known(t *testing.T, expression string) (value string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node here")
	}
	const script = `const vm = require('vm'), fs = require('fs');
const context = vm.createContext({ performance, URL, Intl });
process.stdout.write(JSON.stringify(vm.runInContext(fs.readFileSync('ui/known.js', 'utf8') + ';' + process.argv[1], context)));`
	out, err := exec.CommandContext(t.Context(), node, "-e", script, expression).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", expression, err, out)
	}
	if err := json.Unmarshal(out, &value); err != nil {
		t.Fatalf("%s: %v\n%s", expression, err, out)
	}
	return value
}

// What the page says and asks: of an address with a password in it, of more objects than a look reads, and of what was
// broken.
func TestPageSays(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
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
	} {
		if got := known(t, expression); got != want {
			t.Errorf("%s is %q, want %q", expression, got, want)
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
