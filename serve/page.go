package serve

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// pageFiles are the page: one folder, as it stands there.
//
//go:embed ui
var pageFiles embed.FS

// policy lets the page load its own files and send requests to this server, and nothing else.
// Trusted types keep text from becoming markup, because names of holders and keys may be
// written by anyone.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// A pageFile is a file of the page, ready to be sent.
type pageFile struct {
	kind, tag string
	body      []byte
}

// page returns the files by path. The page itself is at the path of the folder.
var page = sync.OnceValue(func() map[string]pageFile {
	files := map[string]pageFile{}
	for name, kind := range map[string]string{
		"index.html": "text/html; charset=utf-8", "style.css": "text/css; charset=utf-8",
		"known.js": "text/javascript; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		body, err := pageFiles.ReadFile("ui/" + name)
		if err != nil {
			panic(err) // it is compiled in
		}
		hash := sha256.Sum256(body)
		path := "/ui/" + name
		if name == "index.html" {
			path = "/ui/"
		}
		files[path] = pageFile{kind, fmt.Sprintf("%q", hex.EncodeToString(hash[:12])), body}
	}
	return files
})

// servePage answers with a file of the page. A browser asks each time whether the file has
// changed, so after an upgrade it gets the new page at once.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	f, is := page()[r.URL.Path]
	if !s.readOnly(w, r) {
		return
	}
	if !is {
		s.answerRefusal(w, r, refuse(wordUnknown, "there is no such part of the page: it is at /ui/"))
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	status := http.StatusOK
	for _, tag := range strings.Split(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		if tag = strings.TrimSpace(tag); strings.TrimPrefix(tag, "W/") == f.tag || tag == "*" {
			status = http.StatusNotModified
		}
	}
	s.stats.answered(status)
	if status == http.StatusOK {
		h.Set("Content-Type", f.kind)
		h.Set("Content-Length", fmt.Sprint(len(f.body)))
	}
	w.WriteHeader(status)
	if status == http.StatusOK && r.Method == http.MethodGet {
		_, _ = w.Write(f.body) // if the browser has left, it needs none
	}
}

// toPage redirects to the page. The target is relative, because a proxy may serve us under a
// path of its own.
func (s *Server) toPage(w http.ResponseWriter, r *http.Request) {
	if !s.readOnly(w, r) {
		return
	}
	w.Header().Set("Location", "ui/")
	_ = s.writeRaw(w, r, http.StatusTemporaryRedirect, "", nil)
}

func (s *Server) readOnly(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	s.answerRefusal(w, r, refuse(wordMethod, "%s is not among the methods of the page: GET, HEAD", r.Method))
	return false
}
