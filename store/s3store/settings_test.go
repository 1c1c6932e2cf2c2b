package s3store_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
	"github.com/leasehold/leasehold/store/s3store"
)

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
