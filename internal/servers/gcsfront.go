package servers

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Front is the name of the servers of [StartGCSFront] and [StartAzureFront].
const Front = "front"

// frontPage is the maximum number of objects in one page of a listing, whatever the request
// asks for. Clouds may list fewer than asked, and tests see a second page without a thousand
// objects.
const frontPage = 100

// StartGCSFront starts a server inside the test process. It behaves like Google Cloud Storage,
// as far as documented, where the emulator of [StartGCS] does not: it honours conditions of
// reads and deletes, lists in pages, knows which bytes of an upload have arrived, and returns
// only the requested fields. It refuses unknown parameters, so that misspelled conditions are
// noticed.
func StartGCSFront(t testing.TB) *Server {
	t.Helper()
	server := httptest.NewServer(&gcsFront{buckets: map[string]*gcsBucket{}, uploads: map[string]*gcsUpload{}, last: 1_700_000_000_000_000})
	t.Cleanup(server.Close)
	return &Server{Name: Front, Endpoint: server.URL}
}

// OnGCS runs a test on [StartGCSFront] and, unless it is skipped, on [StartGCS].
func OnGCS(t *testing.T, test func(t *testing.T, srv *Server)) {
	t.Helper()
	t.Run(Front, func(t *testing.T) { test(t, StartGCSFront(t)) })
	if !Skipped(GCS) {
		t.Run(GCS, func(t *testing.T) { test(t, StartGCS(t)) })
	}
}

type gcsFront struct {
	mu      sync.Mutex
	buckets map[string]*gcsBucket
	uploads map[string]*gcsUpload // by ID
	last    int64                 // the latest generation of all objects
}

type gcsBucket struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Versioning struct {
		Enabled bool `json:"enabled"`
	} `json:"versioning"`
	objects map[string][]*gcsObject // by name, the oldest generation first
}

// A gcsObject is one generation of an object, and its resource in JSON.
type gcsObject struct {
	Name         string `json:"name"`
	Generation   int64  `json:"generation,string"`
	Size         int    `json:"size,string"`
	Created      string `json:"timeCreated"`
	Deleted      string `json:"timeDeleted,omitempty"` // "" while it is the current one
	ContentType  string `json:"contentType"`
	CacheControl string `json:"cacheControl"`
	body         []byte
}

// live returns the current generation of the object, or one with generation 0 if there is none.
func (b *gcsBucket) live(name string) *gcsObject {
	if all := b.objects[name]; len(all) > 0 && all[len(all)-1].Deleted == "" {
		return all[len(all)-1]
	}
	return &gcsObject{}
}

type gcsUpload struct {
	bucket        string
	object        gcsObject
	only          url.Values // its conditions
	body          []byte
	ended, cancel bool
}

type gcsError struct {
	status          int
	reason, message string
}

func (e *gcsError) Error() string { return e.message }

func gcsInvalid(format string, args ...any) error {
	return &gcsError{400, "invalid", fmt.Sprintf(format, args...)}
}

var (
	errConditionNotMet = &gcsError{412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold."}
	errNotModified     = &gcsError{304, "", ""}
	errNoGCSBucket     = &gcsError{404, "notFound", "The specified bucket does not exist."}
)

var gcsPath = regexp.MustCompile(`^(/upload)?/storage/v1/b(?:/([^/]+)(/o(?:/([^/]+))?)?)?$`)

func (f *gcsFront) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := whole(r)
	if err != nil {
		panic(http.ErrAbortHandler) // the client has left, and the body is incomplete
	}
	// The answer is recorded first, so that a slow reader does not hold the lock.
	answer := httptest.NewRecorder()
	answer.Header().Set("X-Guploader-Uploadid", "front")
	f.mu.Lock()
	err = f.route(answer, r, body)
	f.mu.Unlock()
	if err != nil {
		gcsRefuse(answer, r, err)
	}
	pass(w, answer)
}

func whole(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(r.Body)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// pass sends a recorded answer.
func pass(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// gcsRefuse answers in JSON, or in plain text if the request was for the body of an object.
func gcsRefuse(w http.ResponseWriter, r *http.Request, err error) {
	refused := &gcsError{500, "internalError", err.Error()}
	errors.As(err, &refused)
	switch {
	case refused.status == http.StatusNotModified:
		w.WriteHeader(refused.status)
	case r.Method == http.MethodGet && r.URL.Query().Get("alt") == "media":
		http.Error(w, refused.message, refused.status)
	default:
		said := map[string]any{"code": refused.status, "message": refused.message, "errors": []map[string]string{{"domain": "global", "message": refused.message, "reason": refused.reason}}}
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		w.WriteHeader(refused.status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": said})
	}
}

func (f *gcsFront) route(w http.ResponseWriter, r *http.Request, body []byte) error {
	path := gcsPath.FindStringSubmatch(r.URL.EscapedPath())
	query, err := url.ParseQuery(r.URL.RawQuery)
	if path == nil || err != nil {
		return gcsInvalid("%s is no request of the JSON API", r.RequestURI)
	}
	bucket, _ := url.PathUnescape(path[2])
	name, _ := url.PathUnescape(path[4])
	what := r.Method + " " + path[1] + map[bool]string{true: "/o", false: "/b"}[path[3] != ""] + map[bool]string{true: "/NAME", false: ""}[name != ""]
	if query.Get("upload_id") != "" {
		what += " session"
	}
	takes, known := map[string]string{
		"POST /b": "project", "GET /b": "project", "GET /o": "prefix startOffset maxResults pageToken versions fields",
		"GET /o/NAME": "alt generation ifGenerationMatch ifGenerationNotMatch", "DELETE /o/NAME": "generation ifGenerationMatch",
		"POST /upload/o":        "uploadType name fields ifGenerationMatch",
		"PUT /upload/o session": "uploadType name upload_id", "DELETE /upload/o session": "uploadType name upload_id",
	}[what]
	if !known {
		return &gcsError{405, "methodNotAllowed", what}
	}
	for parameter, values := range query {
		if !slices.Contains(strings.Fields(takes+" userProject"), parameter) || len(values) != 1 {
			return gcsInvalid("Invalid parameter %q of %s", parameter, what)
		}
	}
	if r.ProtoMajor == 1 && (r.Method == http.MethodPost || query.Has("upload_id")) && r.Header.Get("Content-Length") == "" {
		return &gcsError{411, "required", "Length Required"}
	}
	if what == "POST /b" {
		return f.makeBucket(w, body)
	}
	b := f.buckets[bucket]
	switch {
	case what == "GET /b" && bucket == "":
		return gcsJSON(w, query, map[string]any{"kind": "storage#buckets"})
	case b == nil:
		return errNoGCSBucket
	case what == "GET /b":
		return gcsJSON(w, query, b)
	case what == "GET /o":
		return b.list(w, query)
	case what == "POST /upload/o":
		return f.begin(w, r, b, query, body)
	case strings.HasSuffix(what, "session"):
		return f.session(w, r, query, body)
	case r.Method == http.MethodDelete:
		return f.remove(w, b, name, query)
	}
	return b.download(w, name, query)
}

// gcsJSON writes the requested fields of a resource.
func gcsJSON(w http.ResponseWriter, query url.Values, resource any) error {
	text, err := json.Marshal(resource)
	if fields := query.Get("fields"); err == nil && fields != "" {
		var all map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err = d.Decode(&all); err != nil {
			return err
		}
		top, of, nested := strings.Cut(fields, "items(")
		keep(all, strings.Split(strings.TrimSuffix(top, ",")+",items", ","))
		items, _ := all["items"].([]any)
		for _, item := range items {
			if !nested {
				return gcsInvalid("Invalid field selection %s", fields)
			}
			fields, _ := item.(map[string]any) // every item of a listing is one
			keep(fields, strings.Split(strings.TrimSuffix(of, ")"), ","))
		}
		text, err = json.Marshal(all)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_, err = w.Write(text)
	return err
}

func keep(of map[string]any, names []string) {
	maps.DeleteFunc(of, func(name string, _ any) bool { return !slices.Contains(names, name) })
}

func (f *gcsFront) makeBucket(w http.ResponseWriter, body []byte) error {
	b := &gcsBucket{Kind: "storage#bucket", objects: map[string][]*gcsObject{}}
	switch err := json.Unmarshal(body, b); {
	case err != nil || b.Name == "":
		return gcsInvalid("Invalid bucket: %v", err)
	case f.buckets[b.Name] != nil:
		return &gcsError{409, "conflict", "Your previous request to create the named bucket succeeded and you already own it."}
	}
	f.buckets[b.Name] = b
	return gcsJSON(w, nil, b)
}

func gcsNumber(query url.Values, name string) (n int64, given bool, err error) {
	if given = query.Has(name); given {
		if n, err = strconv.ParseInt(query.Get(name), 10, 64); err != nil || n < 0 {
			err = gcsInvalid("Invalid value for %s: %q", name, query.Get(name))
		}
	}
	return n, given, err
}

// holds checks the conditions on the current generation.
func holds(query url.Values, now int64) error {
	match, must, err := gcsNumber(query, "ifGenerationMatch")
	other, mustNot, bad := gcsNumber(query, "ifGenerationNotMatch")
	switch {
	case err != nil || bad != nil:
		return cmp.Or(err, bad)
	case must && match != now:
		return errConditionNotMet
	case mustNot && other == now:
		return errNotModified
	}
	return nil
}

func (f *gcsFront) write(b *gcsBucket, o gcsObject, only url.Values) (*gcsObject, error) {
	now := b.live(o.Name)
	if err := holds(only, now.Generation); err != nil {
		return nil, err
	}
	f.last++
	o.Generation, o.Size, o.Created = f.last, len(o.body), time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	now.Deleted = o.Created
	if !b.Versioning.Enabled {
		b.objects[o.Name] = nil
	}
	b.objects[o.Name] = append(b.objects[o.Name], &o)
	return &o, nil
}

func (f *gcsFront) begin(w http.ResponseWriter, r *http.Request, b *gcsBucket, query url.Values, body []byte) error {
	o := gcsObject{Name: query.Get("name"), ContentType: r.Header.Get("Content-Type"), body: body}
	kind, params, err := mime.ParseMediaType(o.ContentType)
	switch query.Get("uploadType") {
	case "media":
	case "multipart":
		if err != nil || kind != "multipart/related" {
			return gcsInvalid("Bad content type %q", o.ContentType)
		}
		parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
		if err = part(parts, func(kind string, text []byte) error {
			if kind != "application/json; charset=UTF-8" {
				return fmt.Errorf("metadata of the type %q", kind)
			}
			return json.Unmarshal(text, &o)
		}); err == nil {
			err = part(parts, func(kind string, text []byte) error {
				o.body = text
				if kind != o.ContentType {
					return fmt.Errorf("a body of the type %q, in the metadata %q", kind, o.ContentType)
				}
				return nil
			})
		}
		if _, more := parts.NextRawPart(); err != nil || more != io.EOF {
			return gcsInvalid("Malformed multipart body: %v", cmp.Or(err, more))
		}
	case "resumable":
		if kind != "application/json" || json.Unmarshal(body, &o) != nil {
			return gcsInvalid("Bad metadata of the type %q", kind)
		}
		f.last++
		id := strconv.FormatInt(f.last, 10)
		f.uploads[id] = &gcsUpload{bucket: b.Name, object: o, only: query}
		w.Header().Set("Location", "http://"+r.Host+r.URL.EscapedPath()+"?"+url.Values{"uploadType": {"resumable"}, "name": {o.Name}, "upload_id": {id}}.Encode())
		return nil
	default:
		return gcsInvalid("Invalid uploadType")
	}
	if o.Name == "" {
		return gcsInvalid("Required object name")
	}
	written, err := f.write(b, o, query)
	if err != nil {
		return err
	}
	return gcsJSON(w, query, written)
}

func part(of *multipart.Reader, take func(kind string, text []byte) error) error {
	p, err := of.NextRawPart()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(p)
	if err != nil {
		return err
	}
	return take(p.Header.Get("Content-Type"), text)
}

var contentRange = regexp.MustCompile(`^bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)$`)

// session continues an upload. Its URI replaces credentials.
func (f *gcsFront) session(w http.ResponseWriter, r *http.Request, query url.Values, body []byte) error {
	u := f.uploads[query.Get("upload_id")]
	switch {
	case u == nil || u.cancel:
		return &gcsError{410, "gone", "The requested upload session has ended."}
	case r.Header.Get("Authorization") != "":
		return gcsInvalid("a session needs no credentials")
	case r.Method == http.MethodDelete:
		u.cancel = true
		return &gcsError{499, "", "Client Closed Request"}
	case u.ended:
		return gcsJSON(w, query, f.buckets[u.bucket].live(u.object.Name))
	}
	which := contentRange.FindStringSubmatch(r.Header.Get("Content-Range"))
	if which == nil {
		return gcsInvalid("Failed to parse Content-Range header.")
	}
	from, to, has := int64(0), int64(-1), int64(len(u.body))
	if which[1] != "" {
		_, _ = fmt.Sscan(which[1]+" "+which[2], &from, &to)
	}
	if to-from+1 != int64(len(body)) || len(body) > 0 && from != has {
		return gcsInvalid("Invalid request. There were %d byte(s) for %s, and there are %d already.", len(body), which[0], has)
	}
	if which[3] == "*" && len(body)%(256<<10) != 0 {
		return gcsInvalid("Invalid request. The number of bytes uploaded is required to be a multiple of 262144.")
	}
	if u.body = append(u.body, body...); which[3] != strconv.Itoa(len(u.body)) {
		if len(u.body) > 0 {
			w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(u.body)-1))
		}
		w.WriteHeader(http.StatusPermanentRedirect)
		return nil
	}
	u.object.body, u.ended = u.body, true
	written, err := f.write(f.buckets[u.bucket], u.object, u.only)
	if err != nil {
		return err
	}
	return gcsJSON(w, query, written)
}

// find returns the requested generation, or the current one.
func (b *gcsBucket) find(name string, query url.Values) (*gcsObject, error) {
	generation, given, err := gcsNumber(query, "generation")
	if err != nil {
		return nil, err
	}
	o := b.live(name)
	if given {
		o = &gcsObject{}
		if at := slices.IndexFunc(b.objects[name], func(o *gcsObject) bool { return o.Generation == generation }); at >= 0 {
			o = b.objects[name][at]
		}
	}
	if o.Generation == 0 {
		return nil, &gcsError{404, "notFound", "No such object: " + b.Name + "/" + name}
	}
	return o, holds(query, o.Generation)
}

func (b *gcsBucket) download(w http.ResponseWriter, name string, query url.Values) error {
	o, err := b.find(name, query)
	if err != nil {
		return err
	}
	if query.Get("alt") != "media" {
		return gcsJSON(w, nil, o)
	}
	created, _ := time.Parse(time.RFC3339, o.Created)
	for name, value := range map[string]string{
		"X-Goog-Generation": strconv.FormatInt(o.Generation, 10), "Last-Modified": created.Format(http.TimeFormat),
		"Content-Length": strconv.Itoa(len(o.body)), "Content-Type": o.ContentType, "Cache-Control": o.CacheControl,
	} {
		w.Header().Set(name, value)
	}
	_, _ = w.Write(o.body)
	return nil
}

func (f *gcsFront) remove(w http.ResponseWriter, b *gcsBucket, name string, query url.Values) error {
	o, err := b.find(name, query)
	if err != nil {
		return err
	}
	if b.Versioning.Enabled && !query.Has("generation") {
		o.Deleted = time.Now().UTC().Format(time.RFC3339)
	} else {
		b.objects[name] = slices.DeleteFunc(b.objects[name], func(is *gcsObject) bool { return is == o })
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (b *gcsBucket) list(w http.ResponseWriter, query url.Values) error {
	most, given, err := gcsNumber(query, "maxResults")
	if err != nil || !given || most == 0 {
		return cmp.Or(err, gcsInvalid("Invalid maxResults"))
	}
	after, err := base64.URLEncoding.DecodeString(query.Get("pageToken"))
	if err != nil {
		return gcsInvalid("Invalid pageToken")
	}
	page := struct {
		Kind          string       `json:"kind"`
		NextPageToken string       `json:"nextPageToken,omitempty"`
		Items         []*gcsObject `json:"items,omitempty"`
	}{Kind: "storage#objects"}
	for _, name := range slices.Sorted(maps.Keys(b.objects)) {
		if !strings.HasPrefix(name, query.Get("prefix")) || name < query.Get("startOffset") || name <= string(after) {
			continue
		}
		if len(page.Items) >= int(min(most, frontPage)) {
			page.NextPageToken = base64.URLEncoding.EncodeToString([]byte(page.Items[len(page.Items)-1].Name))
			break
		}
		for _, o := range b.objects[name] {
			if o.Deleted == "" || query.Get("versions") == "true" {
				page.Items = append(page.Items, o)
			}
		}
	}
	return gcsJSON(w, query, page)
}
