package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

const (
	mib  = 1 << 20
	part = 8 * mib
)

func random(size int64) io.Reader { return wiretest.Random(size) }

// A source yields size random bytes, calls then once, and then has err to say.
type source struct {
	size int64
	then func()
	err  error
}

func (s source) reader() io.Reader { return io.MultiReader(random(s.size), &s) }

func (s *source) Read([]byte) (int, error) {
	if s.then != nil {
		s.then()
		s.then = nil
	}
	return 0, s.err
}

// atOnce makes the client send a request up to three times, without waiting.
func atOnce(client *s3.Client) *s3.Client {
	return s3.New(client.Options(), func(o *s3.Options) {
		o.RetryMaxAttempts = 3
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		})
	})
}

// uploads gives the IDs of the uploads in parts of k that have not ended.
func (p *planted) uploads(t *testing.T) (ids []string) {
	t.Helper()
	// MinIO shows those of one key only, if one asks for it.
	out, err := p.client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &p.bucket, Prefix: aws.String(prefix + "/k")})
	if answer, ok := errors.AsType[smithy.APIError](err); ok && answer.ErrorCode() == "NoSuchUpload" {
		return nil // gofakes3, where there never was one
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range out.Uploads {
		ids = append(ids, aws.ToString(u.UploadId))
	}
	return ids
}

// end ends all uploads of k, as anybody may.
func (p *planted) end(t *testing.T) {
	t.Helper()
	for _, id := range p.uploads(t) {
		_, err := p.client.AbortMultipartUpload(t.Context(), &s3.AbortMultipartUploadInput{Bucket: &p.bucket, Key: aws.String(prefix + "/k"), UploadId: &id})
		if err != nil {
			t.Error(err)
		}
	}
}

// wantNothing checks that k is not there, nor parts of it.
func (p *planted) wantNothing(t *testing.T) {
	t.Helper()
	if _, _, err := p.GetLarge(t.Context(), "k"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("opening what was not written: %v", err)
	}
	if ids := p.uploads(t); len(ids) != 0 {
		t.Errorf("%d uploads have not ended", len(ids))
	}
}

// wantLarge checks that k is of that size, and what was written.
func (p *planted) wantLarge(t *testing.T, size int64) {
	t.Helper()
	r, n, err := p.GetLarge(t.Context(), "k")
	if err != nil || n != size {
		t.Fatalf("opening an object of %d bytes gives %d, %v", size, n, err)
	}
	defer r.Close()
	got, want := make([]byte, mib), make([]byte, mib)
	body := random(size)
	for {
		a, err := io.ReadFull(r, got)
		b, _ := io.ReadFull(body, want)
		if !bytes.Equal(got[:a], want[:b]) {
			t.Fatal("what was read is not what was written")
		}
		if err != nil {
			if b < mib && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
				return
			}
			t.Fatal(err)
		}
	}
}

func TestLargeRequests(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	for _, c := range []struct {
		size      int64
		put, post int
	}{
		{0, 1, 0},
		{1, 1, 0},
		{mib + 1, 1, 0},
		{part - 1, 1, 0},
		{part, 1, 2},
		{part + 1, 2, 2},
		{3 * part, 3, 2},
	} {
		proxy := servers.StartProxy(t, srv.Endpoint, nil)
		st := open(t, srv.ClientAt(proxy.Endpoint), srv.Bucket(t))
		if n, err := st.PutLarge(t.Context(), "k", random(c.size)); err != nil || n != c.size {
			t.Fatalf("PutLarge of %d bytes gives %d, %v", c.size, n, err)
		}
		if n := proxy.Counts(); n[http.MethodPut] != c.put || n[http.MethodPost] != c.post || len(n) > 2 {
			t.Errorf("%d bytes took %v, want %d PUT and %d POST", c.size, n, c.put, c.post)
		}
		st.wantLarge(t, c.size)
	}
}

func TestLarge(t *testing.T) {
	errOwn := errors.New("the reader's own error")
	for _, name := range servers.Selected() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			t.Run("40 MiB", func(t *testing.T) {
				st := open(t, srv.Client(), srv.Bucket(t))
				if _, err := st.PutLarge(t.Context(), "k", random(40*mib)); err != nil {
					t.Fatal(err)
				}
				st.wantLarge(t, 40*mib)
				if ids := st.uploads(t); len(ids) != 0 {
					t.Errorf("%d uploads have not ended", len(ids))
				}
			})
			// That there were uploads to see makes it worth something that in the
			// end there are none.
			t.Run("the reader fails", func(t *testing.T) {
				st := open(t, srv.Client(), srv.Bucket(t))
				seen := 0
				_, err := st.PutLarge(t.Context(), "k", source{size: 2*part + 1, err: errOwn, then: func() { seen = len(st.uploads(t)) }}.reader())
				wiretest.CheckError(t, "put", err, store.ErrInvalid)
				if !errors.Is(err, errOwn) || seen != 1 {
					t.Errorf("%d uploads were seen under way; the error is %v", seen, err)
				}
				st.wantNothing(t)
			})
			t.Run("the context ends", func(t *testing.T) {
				st := open(t, srv.Client(), srv.Bucket(t))
				for _, size := range []int64{1, part, 2 * part} {
					ctx, cancel := context.WithCancel(t.Context())
					_, err := st.PutLarge(ctx, "k", source{size: size, err: io.EOF, then: cancel}.reader())
					wiretest.CheckError(t, "put", err, store.ErrUnavailable)
					if !errors.Is(err, context.Canceled) {
						t.Errorf("%v does not match context.Canceled", err)
					}
					st.wantNothing(t)
				}
			})
			t.Run("somebody ends the upload", func(t *testing.T) {
				st := open(t, srv.Client(), srv.Bucket(t))
				_, err := st.PutLarge(t.Context(), "k", source{size: 2*part + 1, err: io.EOF, then: func() { st.end(t) }}.reader())
				wiretest.CheckError(t, "put", err, store.ErrUnavailable)
				if !strings.Contains(err.Error(), "lifecycle") {
					t.Errorf("the error is %v", err)
				}
				st.wantNothing(t)
			})
		})
	}
}

// All that the process allocates to write and read a body is less than half of it.
func TestLargeTakesLittleMemory(t *testing.T) {
	const size = 100 * mib
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"1"`)
		switch purpose(r) {
		case "begin":
			_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>")
		case "complete":
			_, _ = io.WriteString(w, "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>")
		default:
			if r.Method == http.MethodGet {
				w.Header().Set("Content-Length", strconv.Itoa(size))
				_, _ = io.Copy(w, random(size))
			}
		}
	}))
	t.Cleanup(server.Close)
	st := &planted{Store: newStore(t, client(server.URL))}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := st.PutLarge(t.Context(), "k", random(size)); err != nil {
		t.Fatal(err)
	}
	st.wantLarge(t, size)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > size/2 {
		t.Errorf("%d bytes were allocated for a body of %d", allocated, size)
	}
}
