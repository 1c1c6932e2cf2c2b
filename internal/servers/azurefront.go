package servers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// StartAzureFront starts a server inside the test process with one account. It behaves like
// Azure Blob Storage, as far as documented, for block blobs without leases and snapshots.
// Unlike the emulator of [StartAzurite], it lists in pages and honours startFrom. It checks
// signatures and permissions, and refuses unknown parameters and conditions, so that misspelled
// ones are noticed.
func StartAzureFront(t testing.TB) *Azurite {
	t.Helper()
	front := &azureFront{containers: map[string]map[string]*azureBlob{}}
	server := httptest.NewServer(front)
	t.Cleanup(server.Close)
	return &Azurite{Endpoint: server.URL + "/" + accessKey, Account: accessKey, Key: base64.StdEncoding.EncodeToString([]byte(secretKey))}
}

// OnAzure runs a test on [StartAzureFront] and, unless it is skipped, on [StartAzurite].
func OnAzure(t *testing.T, test func(t *testing.T, srv *Azurite)) {
	t.Helper()
	t.Run(Front, func(t *testing.T) { test(t, StartAzureFront(t)) })
	if !Skipped("azurite") {
		t.Run("azurite", func(t *testing.T) { test(t, StartAzurite(t)) })
	}
}

type azureFront struct {
	mu         sync.Mutex
	containers map[string]map[string]*azureBlob
	last       int // counts all ETags
}

// An azureBlob exists for readers once it has an ETag. It can have blocks before.
type azureBlob struct {
	body     []byte
	etag     string
	modified string
	blocks   map[string][]byte // not yet committed, by ID
	taken    map[string][]byte // by the last commit, which may be repeated
}

type azureError struct {
	status       int
	code, detail string
}

func (e *azureError) Error() string { return e.code + ": " + e.detail }

var errAzureCondition = &azureError{412, "ConditionNotMet", ""}

func (f *azureFront) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := whole(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	answer := httptest.NewRecorder()
	answer.Header().Set("x-ms-request-id", "front")
	answer.Header().Set("x-ms-version", r.Header.Get("x-ms-version"))
	f.mu.Lock()
	err = f.route(answer, r, body)
	f.mu.Unlock()
	if err != nil {
		refused := &azureError{500, "InternalError", err.Error()}
		errors.As(err, &refused)
		answer.Header().Set("x-ms-error-code", refused.code)
		answer.Header().Set("Content-Type", "application/xml")
		answer.WriteHeader(refused.status)
		if refused.status != http.StatusNotModified {
			fmt.Fprintf(answer, "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code><Message>The front says %[1]s.\nRequestId:front\nTime:now</Message>", refused.code)
			fmt.Fprint(answer, "<AuthenticationErrorDetail>")
			_ = xml.EscapeText(answer, []byte(refused.detail))
			fmt.Fprint(answer, "</AuthenticationErrorDetail></Error>")
		}
	}
	pass(w, answer)
}

// azureRequests are the known requests by method, resource and comp, each with its parameters,
// its conditions and the permission it needs in a SAS ("": a SAS is not enough, but the account
// key is).
var azureRequests = map[string]struct{ parameters, conditions, may string }{
	"PUT container ":         {"restype", "", ""},
	"GET container ":         {"restype", "", "r"},
	"GET container list":     {"restype comp prefix marker maxresults startFrom include", "", "l"},
	"GET account properties": {"restype comp", "", "r"},
	"GET service properties": {"restype comp", "", ""},
	"PUT blob ":              {"", "If-Match If-None-Match", "wc"},
	"PUT blob block":         {"comp blockid", "", "wc"},
	"PUT blob blocklist":     {"comp", "If-Match If-None-Match", "wc"},
	"GET blob blocklist":     {"comp blocklisttype", "", "r"},
	"GET blob ":              {"", "If-Match If-None-Match", "r"},
	"DELETE blob ":           {"", "If-Match", "d"},
}

const sasParameters = " sv ss srt sp se st spr sr sig"

func (f *azureFront) route(w http.ResponseWriter, r *http.Request, body []byte) error {
	query := r.URL.Query()
	path := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	for len(path) < 3 {
		path = append(path, "")
	}
	about := query.Get("restype")
	if path[2] != "" {
		about = "blob"
	}
	what := r.Method + " " + about + " " + query.Get("comp")
	request, known := azureRequests[what]
	if !known || path[0] != accessKey {
		return &azureError{400, "InvalidUri", what}
	}
	for parameter, values := range query {
		if !slices.Contains(strings.Fields(request.parameters+sasParameters), parameter) || len(values) != 1 {
			return &azureError{400, "InvalidQueryParameterValue", parameter}
		}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "If-") && !slices.Contains(strings.Fields(request.conditions), name) {
			return &azureError{400, "ConditionHeadersNotSupported", name}
		}
	}
	switch {
	case r.Header.Get("x-ms-version") == "":
		return &azureError{400, "MissingRequiredHeader", "x-ms-version"}
	case r.Method == http.MethodPut && r.ContentLength < 0:
		return &azureError{411, "MissingContentLengthHeader", ""}
	}
	if err := f.admit(r, query, path[1], request.may); err != nil {
		return err
	}
	if about == "blob" || what == "GET container list" || what == "GET container " {
		if f.containers[path[1]] == nil {
			return &azureError{404, "ContainerNotFound", ""}
		}
	}
	return f.serve(w, r, what, path[1], path[2], body)
}

// admit checks the signature by the account key, or the SAS.
func (f *azureFront) admit(r *http.Request, query url.Values, in, may string) error {
	key := base64.StdEncoding.EncodeToString([]byte(secretKey))
	signature, signed := strings.CutPrefix(r.Header.Get("Authorization"), "SharedKey "+accessKey+":")
	switch {
	case signed && hmac.Equal([]byte(signature), []byte(sharedKey(r, query))):
		return nil
	case r.Header.Get("Authorization") != "":
		return &azureError{403, "AuthenticationFailed", "The MAC signature found in the HTTP request is not the same as any computed signature."}
	case query.Get("sig") == "":
		return &azureError{404, "ResourceNotFound", ""} // Azure's answer about private resources
	}
	by, err := service.NewSharedKeyCredential(accessKey, key)
	if err != nil {
		return err
	}
	is := sas.NewQueryParameters(query, false)
	want, err := sas.BlobSignatureValues{
		ContainerName: in, Permissions: is.Permissions(), StartTime: is.StartTime(), ExpiryTime: is.ExpiryTime(), Version: is.Version(),
	}.SignWithSharedKey(by)
	switch {
	case err != nil || want.Signature() != is.Signature():
		return &azureError{403, "AuthenticationFailed", "Signature did not match."}
	case time.Now().After(is.ExpiryTime()) || time.Now().Before(is.StartTime()):
		return &azureError{403, "AuthenticationFailed", "Signature not valid in the specified time frame"}
	case may == "":
		return &azureError{403, "AuthorizationResourceTypeMismatch", ""}
	case !strings.ContainsAny(is.Permissions(), may):
		return &azureError{403, "AuthorizationPermissionMismatch", ""}
	}
	return nil
}

// sharedKey returns the signature of a request:
// https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
func sharedKey(r *http.Request, query url.Values) string {
	lines := []string{r.Method}
	for _, name := range []string{
		"Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
	} {
		value := r.Header.Get(name)
		if name == "Content-Length" && value == "0" {
			value = ""
		}
		lines = append(lines, value)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ms-") {
			lines = append(lines, lower+":"+r.Header.Get(name))
		}
	}
	lines = append(lines, "/"+accessKey+r.URL.EscapedPath())
	for _, name := range slices.SortedFunc(maps.Keys(query), func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }) {
		lines = append(lines, strings.ToLower(name)+":"+query.Get(name))
	}
	mac := hmac.New(sha256.New, []byte(secretKey))
	mac.Write([]byte(strings.Join(lines, "\n")))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func (f *azureFront) serve(w http.ResponseWriter, r *http.Request, what, in, name string, body []byte) error {
	blobs := f.containers[in]
	b := blobs[name]
	if b == nil {
		b = &azureBlob{blocks: map[string][]byte{}}
	}
	switch what {
	case "PUT container ":
		if blobs != nil {
			return &azureError{409, "ContainerAlreadyExists", ""}
		}
		f.containers[in] = map[string]*azureBlob{}
		w.WriteHeader(http.StatusCreated)
	case "GET container ":
		w.Header().Set("x-ms-has-immutability-policy", "false")
		w.Header().Set("x-ms-has-legal-hold", "false")
	case "GET account properties":
		w.Header().Set("x-ms-is-hns-enabled", "false")
	case "GET service properties":
		_, _ = io.WriteString(w, `<?xml version="1.0" encoding="utf-8"?><StorageServiceProperties><DeleteRetentionPolicy><Enabled>false</Enabled></DeleteRetentionPolicy></StorageServiceProperties>`)
	case "GET container list":
		return list(w, blobs, r.URL.Query())
	case "PUT blob ":
		if kind := r.Header.Get("x-ms-blob-type"); kind != "BlockBlob" {
			return &azureError{400, "InvalidHeaderValue", "x-ms-blob-type: " + kind}
		}
		if err := b.admits(r); err != nil {
			return err
		}
		blobs[name] = b
		f.write(w, b, body)
	case "PUT blob block":
		id := r.URL.Query().Get("blockid")
		if _, err := base64.StdEncoding.DecodeString(id); err != nil || id == "" || len(body) == 0 {
			return &azureError{400, "InvalidQueryParameterValue", "blockid"}
		}
		for other := range b.blocks {
			if len(other) != len(id) {
				return &azureError{400, "InvalidBlobOrBlock", "the IDs of blocks have different lengths"}
			}
		}
		b.blocks[id], blobs[name] = body, b
		w.WriteHeader(http.StatusCreated)
	case "PUT blob blocklist":
		if err := b.admits(r); err != nil {
			return err
		}
		whole, taken, err := b.assemble(body)
		if err != nil {
			return err
		}
		f.write(w, b, whole)
		b.taken = taken
	default:
		return b.serve(w, r, what, blobs, name)
	}
	return nil
}

func (b *azureBlob) admits(r *http.Request) error {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case none != "" && none != "*" || match != "" && none != "":
		return &azureError{400, "UnsupportedHeader", "If-None-Match"}
	case none == "*" && b.etag != "":
		return &azureError{409, "BlobAlreadyExists", ""}
	case match != "" && (b.etag == "" || match != "*" && match != b.etag):
		return errAzureCondition
	}
	return nil
}

// write replaces the blob's body. Uncommitted blocks are dropped.
func (f *azureFront) write(w http.ResponseWriter, b *azureBlob, body []byte) {
	f.last++
	b.body, b.blocks, b.taken = body, map[string][]byte{}, nil
	b.etag, b.modified = fmt.Sprintf(`"0x8DE%012X"`, f.last), time.Now().UTC().Format(http.TimeFormat)
	w.Header().Set("ETag", b.etag)
	w.Header().Set("Last-Modified", b.modified)
	w.WriteHeader(http.StatusCreated)
}

// assemble returns the body from the blocks in a list.
func (b *azureBlob) assemble(text []byte) (whole []byte, taken map[string][]byte, err error) {
	var of struct {
		XMLName xml.Name `xml:"BlockList"`
		Latest  []string
	}
	if err := xml.Unmarshal(text, &of); err != nil {
		return nil, nil, &azureError{400, "InvalidXmlDocument", err.Error()}
	}
	all := maps.Clone(b.taken)
	if all == nil {
		all = map[string][]byte{}
	}
	maps.Copy(all, b.blocks)
	taken = map[string][]byte{}
	for _, id := range of.Latest {
		block, there := all[id]
		if !there {
			return nil, nil, &azureError{400, "InvalidBlockList", id}
		}
		taken[id] = block
		whole = append(whole, block...)
	}
	return whole, taken, nil
}

// serve answers requests about an existing blob.
func (b *azureBlob) serve(w http.ResponseWriter, r *http.Request, what string, blobs map[string]*azureBlob, name string) error {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case what == "GET blob blocklist" && blobs[name] != nil:
		fmt.Fprint(w, `<?xml version="1.0" encoding="utf-8"?><BlockList><UncommittedBlocks>`)
		for id, block := range b.blocks {
			fmt.Fprintf(w, `<Block><Name>%s</Name><Size>%d</Size></Block>`, id, len(block))
		}
		fmt.Fprint(w, `</UncommittedBlocks></BlockList>`)
	case b.etag == "":
		return &azureError{404, "BlobNotFound", ""}
	case match != "" && match != b.etag:
		return errAzureCondition
	case r.Method == http.MethodDelete:
		delete(blobs, name)
		w.WriteHeader(http.StatusAccepted)
	case none == b.etag:
		return &azureError{304, "ConditionNotMet", ""}
	default:
		w.Header().Set("ETag", b.etag)
		w.Header().Set("Last-Modified", b.modified)
		w.Header().Set("x-ms-blob-type", "BlockBlob")
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(b.body)))
		_, _ = w.Write(b.body)
	}
	return nil
}

// list lists blobs in byte order. ETags in a listing have no quotes.
func list(w http.ResponseWriter, blobs map[string]*azureBlob, query url.Values) error {
	type item struct {
		Name     string
		Etag     string `xml:"Properties>Etag"`
		Modified string `xml:"Properties>Last-Modified"`
		Size     int    `xml:"Properties>Content-Length"`
		Type     string `xml:"Properties>BlobType"`
	}
	page := struct {
		XMLName    xml.Name `xml:"EnumerationResults"`
		Blobs      []item   `xml:"Blobs>Blob"`
		NextMarker string
	}{}
	after, err := base64.URLEncoding.DecodeString(query.Get("marker"))
	if include := query.Get("include"); err != nil || include != "" && include != "versions" {
		return &azureError{400, "InvalidQueryParameterValue", "marker or include"}
	}
	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		b := blobs[name]
		if b.etag == "" || !strings.HasPrefix(name, query.Get("prefix")) || name < query.Get("startFrom") || name <= string(after) {
			continue
		}
		if len(page.Blobs) == frontPage {
			page.NextMarker = base64.URLEncoding.EncodeToString([]byte(page.Blobs[frontPage-1].Name))
			break
		}
		page.Blobs = append(page.Blobs, item{name, strings.Trim(b.etag, `"`), b.modified, len(b.body), "BlockBlob"})
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, xml.Header)
	return xml.NewEncoder(w).Encode(page)
}
