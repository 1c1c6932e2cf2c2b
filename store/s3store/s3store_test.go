package s3store_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
	"github.com/leasehold/leasehold/store/s3store"
)

func TestNewRefuses(t *testing.T) {
	c := client("http://127.0.0.1:9000")
	for _, tt := range []struct {
		name   string
		client *s3.Client
		bucket string
		prefix string
	}{
		{"no client", nil, "bucket", ""},
		{"no bucket", c, "", ""},
		{"a slash at the end", c, "bucket", "a/"},
		{"a slash at the start", c, "bucket", "/a"},
		{"dots", c, "bucket", "a/../b"},
		{"too long", c, "bucket", strings.Repeat("a/", 127) + "aa"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, err := s3store.New(tt.client, tt.bucket, &s3store.Options{Prefix: tt.prefix})
			if !errors.Is(err, store.ErrInvalid) || st != nil {
				t.Errorf("New gives %v, %v, want ErrInvalid", st, err)
			}
		})
	}
	if _, err := s3store.New(c, "bucket", &s3store.Options{Prefix: strings.Repeat("a/", 127) + "a"}); err != nil {
		t.Errorf("a prefix of 255 bytes: %v", err)
	}
}

func TestString(t *testing.T) {
	aws := s3.New(s3.Options{Region: "us-east-1"})
	for _, tt := range []struct {
		client *s3.Client
		prefix string
		want   string
	}{
		{aws, "", "s3://bucket"},
		{aws, "a/b", "s3://bucket/a/b"},
		{aws, "100%?#", "s3://bucket/100%25%3F%23"},
		{client("http://127.0.0.1:9000"), "a", "s3://bucket/a?endpoint=http://127.0.0.1:9000"},
		{client("http://user:secret@127.0.0.1:9000"), "", "s3://bucket?endpoint=http://127.0.0.1:9000"},
	} {
		st, err := s3store.New(tt.client, "bucket", &s3store.Options{Prefix: tt.prefix})
		if err != nil {
			t.Fatal(err)
		}
		if got := st.String(); got != tt.want {
			t.Errorf("String() = %q, want %q", got, tt.want)
		}
	}
}

// A request carries the condition and the key under its prefix, and nothing that
// some servers cannot bear.
func TestRequests(t *testing.T) {
	for _, tt := range []struct {
		name    string
		do      func(context.Context, *s3store.Store) error
		request string
		headers map[string]string
	}{
		{
			"create", operations["create"], "PUT /bucket/a/b/k?x-id=PutObject",
			map[string]string{"If-None-Match": "*", "If-Match": "", "Content-Length": "4"},
		},
		{
			"update", operations["update"], "PUT /bucket/a/b/k?x-id=PutObject",
			map[string]string{"If-None-Match": "", "If-Match": `"v1"`},
		},
		{
			"get", operations["get"], "GET /bucket/a/b/k?x-id=GetObject",
			map[string]string{"If-None-Match": `"v1"`, "X-Amz-Checksum-Mode": ""},
		},
		{
			"delete", operations["delete"], "DELETE /bucket/a/b/k?x-id=DeleteObject",
			map[string]string{"If-Match": ""},
		},
		{
			"list", func(ctx context.Context, st *s3store.Store) error {
				_, err := drain(ctx, st, "k", "k1")
				return err
			}, "GET /bucket?list-type=2&prefix=a%2Fb%2Fk&start-after=a%2Fb%2Fk1", nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := newFaulty(t, wiretest.Raw(200, "ETag: \"v2\"\r\n", "<ListBucketResult/>"), wiretest.Hang)
			st, err := s3store.New(client("http://"+server.Addr), "bucket", &s3store.Options{Prefix: "a/b"})
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.do(t.Context(), st); err != nil {
				t.Fatal(err)
			}
			req := server.Seen()[0]
			if got := req.Method + " " + req.RequestURI; got != tt.request {
				t.Errorf("the request is %s, want %s", got, tt.request)
			}
			req.Header.Set("Content-Length", fmt.Sprint(req.ContentLength))
			for name, want := range tt.headers {
				if got := req.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			for name := range req.Header {
				if strings.HasPrefix(name, "X-Amz-Checksum") || name == "X-Amz-Trailer" {
					t.Errorf("the request has the header %s", name)
				}
			}
		})
	}
}

// A page of a listing, as a server gives it.
type page struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	Contents              []object
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
}

type object struct {
	Key  string
	ETag string
	Size int64
}

// lister answers with one page after the other, whatever it is asked, and then
// with the last again and again.
func lister(t *testing.T, pages ...page) (st *s3store.Store, asked func() []string) {
	t.Helper()
	var queries []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := pages[min(len(queries), len(pages)-1)]
		queries = append(queries, r.URL.Query().Get("continuation-token"))
		_ = xml.NewEncoder(w).Encode(p)
	}))
	t.Cleanup(server.Close)
	st, err := s3store.New(client(server.URL, func(o *s3.Options) { o.HTTPClient = server.Client() }), "bucket", &s3store.Options{Prefix: "p"})
	if err != nil {
		t.Fatal(err)
	}
	return st, func() []string { return queries }
}

func keys(names ...string) []object {
	var all []object
	for _, name := range names {
		all = append(all, object{Key: "p/" + name, ETag: `"v"`, Size: 1})
	}
	return all
}

func TestListPages(t *testing.T) {
	st, asked := lister(t,
		page{Contents: keys("a", "b"), IsTruncated: true, NextContinuationToken: "1"},
		page{IsTruncated: true, NextContinuationToken: "2"}, // empty, and not the last
		page{Contents: keys("c")},
	)
	got, err := drain(t.Context(), st, "", "")
	if err != nil || !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("List gives %q, %v, want a, b, c", got, err)
	}
	if want := []string{"", "1", "2"}; !slices.Equal(asked(), want) {
		t.Errorf("the requests went on from %q, want %q", asked(), want)
	}
}

func TestListStopsAsking(t *testing.T) {
	st, asked := lister(t,
		page{Contents: keys("a", "b"), IsTruncated: true, NextContinuationToken: "1"},
		page{Contents: keys("c")},
	)
	for entry, err := range st.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if entry.Key == "b" { // the last of its page
			break
		}
	}
	if n := len(asked()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// List leaves out folders, as the AWS console makes them: no store names a key so.
func TestListLeavesFoldersOut(t *testing.T) {
	st, _ := lister(t, page{Contents: keys("", "a", "b/", "b/c")})
	got, err := drain(t.Context(), st, "", "")
	if err != nil || !slices.Equal(got, []string{"a", "b/c"}) {
		t.Errorf("List gives %q, %v, want a, b/c", got, err)
	}
}

func TestListRefusesWhatItCannotTrust(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after string
		pages []page
		want  []string
		says  string
	}{
		{"no order in a page", "", []page{{Contents: keys("b", "a")}}, []string{"b"}, "byte order"},
		{
			"no order over pages", "",
			[]page{{Contents: keys("b"), IsTruncated: true, NextContinuationToken: "1"}, {Contents: keys("a")}},
			[]string{"b"},
			"byte order",
		},
		{
			"the same page for ever", "",
			[]page{{Contents: keys("a"), IsTruncated: true, NextContinuationToken: "1"}},
			[]string{"a"},
			"byte order",
		},
		{"what comes before", "b", []page{{Contents: keys("a", "c")}}, nil, "byte order"},
		{"no way on", "", []page{{Contents: keys("a"), IsTruncated: true}}, []string{"a"}, "does not say how to go on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, _ := lister(t, tt.pages...)
			got, err := drain(t.Context(), st, "", tt.after)
			if !slices.Equal(got, tt.want) {
				t.Errorf("List gives %q before its error, want %q", got, tt.want)
			}
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("List gives the error %v, want ErrUnavailable that says %q", err, tt.says)
			}
		})
	}
}

// What the error of a listing without order says, of what was asked.
func TestListWithoutOrderSays(t *testing.T) {
	st, _ := lister(t, page{Contents: keys("kb", "ka")})
	_, err := drain(t.Context(), st, "k", "")
	if want := `list "k": store unavailable: the server lists "p/ka" after "p/kb": not in byte order`; err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
}

func TestListOfImpossiblePrefix(t *testing.T) {
	st, asked := lister(t, page{Contents: keys("a")})
	if got, err := drain(t.Context(), st, "a//", ""); err != nil || got != nil {
		t.Errorf("List of a// gives %q, %v, want nothing", got, err)
	}
	if _, err := drain(t.Context(), st, "a\xff", ""); !errors.Is(err, store.ErrInvalid) || !strings.HasSuffix(err.Error(), ": the prefix is not valid UTF-8") {
		t.Errorf("List of a prefix that is not UTF-8 gives %v, want ErrInvalid", err)
	}
	if n := len(asked()); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

// A client may set what would make one call many requests.
func TestRetriesOfTheClientStayOff(t *testing.T) {
	for name, set := range map[string]func(*s3.Options){
		"mode":     func(o *s3.Options) { o.RetryMode = aws.RetryModeAdaptive },
		"attempts": func(o *s3.Options) { o.RetryMaxAttempts = 10 },
		"retryer":  func(o *s3.Options) { o.Retryer = retry.NewStandard() },
	} {
		for op, do := range operations {
			t.Run(name+"/"+op, func(t *testing.T) {
				server := newFaulty(t, coded(500, "InternalError"), wiretest.FIN)
				if err := do(t.Context(), server.store(t, set)); err == nil {
					t.Error("no error of a 500")
				}
				if n := len(server.Seen()); n != 1 {
					t.Errorf("%d requests reached the server, want 1", n)
				}
			})
		}
	}
}

// A counted connection counts the calls of Write.
type counted struct {
	net.Conn
	writes *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestSmallWriteIsOnePacket: a small body leaves together with the headers, and any body
// arrives as it is.
func TestSmallWriteIsOnePacket(t *testing.T) {
	var arrived []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if arrived, err = io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("ETag", `"v2"`)
	}))
	defer server.Close()
	var writes atomic.Int64
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return counted{c, &writes}, err
	}}
	defer transport.CloseIdleConnections()
	st := newStore(t, client(server.URL, func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: transport} }))
	for size, one := range map[int]bool{0: true, 1: true, 600: true, 3000: true, 4 << 10: false, 4<<10 + 1: false, 300 << 10: false} {
		body := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		writes.Store(0)
		if _, err := st.Put(t.Context(), "k", body, store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		if n := writes.Load(); one != (n == 1) || !bytes.Equal(arrived, body) {
			t.Errorf("%d bytes: %d arrived, in %d packets", size, len(arrived), n)
		}
	}
}

// TestSettingsAreSent: each request has the headers that its bucket may require, signed, and no other request has them.
func TestSettingsAreSent(t *testing.T) {
	const (
		sum, encryption = "Content-Md5", "X-Amz-Server-Side-Encryption"
		key, payer      = "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", "X-Amz-Request-Payer"
	)
	var mu sync.Mutex
	var seen []*http.Request
	var sums []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		of := md5.Sum(body)
		mu.Lock()
		seen, sums = append(seen, r), append(sums, base64.StdEncoding.EncodeToString(of[:]))
		mu.Unlock()
		w.Header().Set("ETag", `"v1"`)
		switch query := r.URL.Query(); {
		case query.Has("uploads"):
			_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>")
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, "<CompleteMultipartUploadResult><ETag>v1</ETag></CompleteMultipartUploadResult>")
		case query.Has("list-type"):
			_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
		}
	}))
	defer server.Close()
	for _, opts := range []*s3store.Options{
		nil,
		{ContentMD5: true, Encryption: "aws:kms", KMSKey: "arn:aws:kms:eu-west-1:1:key/k", RequesterPays: true},
	} {
		seen, sums = nil, nil
		st, err := s3store.New(client(server.URL), "bucket", opts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = st.Put(t.Context(), "k", []byte("body"), store.IfAbsent())
		_, again := st.Put(t.Context(), "k", []byte("body"), store.IfMatch(`"v0"`))
		_, large := st.PutLarge(t.Context(), "k", strings.NewReader("body"))
		_, larger := st.PutLarge(t.Context(), "k", bytes.NewReader(make([]byte, 9<<20)))
		_, get := st.Get(t.Context(), "k", "")
		_, list := drain(t.Context(), st, "k", "")
		over := st.Inspect().Overwrite(t.Context(), "k", []byte("body"))
		if err = errors.Join(err, again, large, larger, get, list, over, st.Delete(t.Context(), "k")); err != nil {
			t.Fatal(err)
		}
		for i, r := range seen {
			query := r.URL.Query()
			creates := r.Method == http.MethodPut && !query.Has("partNumber") || query.Has("uploads")
			want := map[string]string{}
			if opts != nil {
				want[payer] = "requester"
			}
			if opts != nil && r.Method == http.MethodPut {
				want[sum] = sums[i]
			}
			if opts != nil && creates {
				want[encryption], want[key] = opts.Encryption, opts.KMSKey
			}
			for _, name := range []string{sum, encryption, key, payer} {
				signed := strings.Contains(r.Header.Get("Authorization"), strings.ToLower(name))
				if got := r.Header.Get(name); got != want[name] || name != sum && signed != (want[name] != "") {
					t.Errorf("%s %v: the header %s is %q, signed: %v; want %q", r.Method, r.URL, name, got, signed, want[name])
				}
			}
		}
		if len(seen) != 11 {
			t.Errorf("%d requests", len(seen))
		}
	}
}

// TestSettingsThatCannotBe are refused before anything is sent.
func TestSettingsThatCannotBe(t *testing.T) {
	for _, opts := range []*s3store.Options{{Encryption: "aws:km"}, {KMSKey: "k"}, {KMSKey: "k", Encryption: "AES256"}} {
		if _, err := s3store.New(client("http://127.0.0.1:9"), "bucket", opts); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// TestBucketThatRequiresAChecksum: the message says which setting it takes.
func TestBucketThatRequiresAChecksum(t *testing.T) {
	answer := wiretest.Raw(400, "", xmlError("InvalidRequest", "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters"))
	for _, op := range puts {
		err := operations[op](t.Context(), newFaulty(t, answer, wiretest.Hang).store(t))
		wiretest.CheckError(t, op, err, store.ErrRefused)
		if !strings.Contains(err.Error(), "content_md5=true") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if err := operations["get"](t.Context(), newFaulty(t, answer, wiretest.Hang).store(t)); strings.Contains(err.Error(), "content_md5") {
		t.Errorf("a get: %v", err)
	}
}
