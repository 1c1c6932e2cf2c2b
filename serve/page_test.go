package serve_test

import (
	"net/http"
	"net/http/httptest"
	"os"
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
