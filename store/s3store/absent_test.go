package s3store_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

// notS3 are servers that are no S3 servers, and proxies before one that is gone.
var notS3 = map[string]http.HandlerFunc{
	"net/http's files": func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
	"nginx": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "nginx/1.24.0")
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n<center><h1>404 Not Found</h1></center>\r\n<hr><center>nginx/1.24.0</center>\r\n</body>\r\n</html>\r\n"))
	},
	"Python's http.server": func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusNotImplemented)
			_, _ = w.Write([]byte("<!DOCTYPE HTML>\n<html lang=\"en\"><body><p>Error code: 501</p><p>Message: Unsupported method ('PUT').</p></body></html>\n"))
			return
		}
		w.Header().Set("Server", "SimpleHTTP/0.6 Python/3.11.2")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<!DOCTYPE HTML>\n<html lang=\"en\"><body><h1>Error response</h1><p>Error code: 404</p></body></html>\n"))
	},
	"Traefik, whose server is gone": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("404 page not found\n"))
	},
	"Kubernetes' default backend": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("default backend - 404"))
	},
	"CloudFront": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Cf-Id", "id")
		w.WriteHeader(http.StatusNotFound)
	},
	"an API gateway": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amzn-RequestId", "id")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message":"Not Found"}`))
	},
	"one that says nothing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
}

// TestNotS3: on a server that is none of S3 no object is absent, no bucket is missing
// and no listing is empty. Every lock on one used to be absent, and "make the bucket"
// was what there was to do.
func TestNotS3(t *testing.T) {
	for name, handler := range notS3 {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handler)
			t.Cleanup(server.Close)
			for _, op := range all {
				err := operations[op](t.Context(), newStore(t, client(server.URL)))
				e, ok := errors.AsType[*store.Error](err)
				if !ok || !errors.Is(e.Kind, store.ErrUnavailable) && !errors.Is(e.Kind, store.ErrRefused) {
					t.Errorf("%s: %v", op, err)
				}
				if !strings.Contains(err.Error(), "404") && !strings.Contains(err.Error(), "501") || strings.Contains(err.Error(), "make the bucket") {
					t.Errorf("%s: the error says %q, want the answer", op, err)
				}
			}
		})
	}
}

// TestListingOfAnotherServer: pages of a web server were listings without objects.
func TestListingOfAnotherServer(t *testing.T) {
	dir := t.TempDir()
	for name, handler := range map[string]http.Handler{
		"a directory": http.StripPrefix("/bucket", http.FileServer(http.Dir(dir))),
		"a page": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<!DOCTYPE html>\n<html><head><meta charset=utf-8><title>It works!</title></head><body>It works!<br></body></html>"))
		}),
		"no page":                 http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"JSON":                    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"items":[]}`)) }),
		"S3, but a list of parts": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<ListParts/>")) }),
		"S3, but no list at all":  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<CopyObjectResult/>")) }),
		"S3, but no list":         http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<ListAllMyBucketsResult/>")) }),
	} {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		err := operations["list"](t.Context(), newStore(t, client(server.URL)))
		wiretest.CheckError(t, "list", err, store.ErrUnavailable)
		if !strings.Contains(err.Error(), "no listing of S3") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAbsent: each server that is one of S3 tells what is absent in a way that is
// understood, and what is not absent in another.
func TestAbsent(t *testing.T) {
	for _, name := range append([]string{"s3rver"}, servers.Selected()...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var srv *servers.Server
			switch name {
			case "s3rver":
				srv = servers.StartS3rver(t)
			case "minio":
				srv = servers.StartIAM(t, name) // it knows that a stranger is one
			default:
				srv = servers.Start(t, name)
			}
			bucket := srv.Bucket(t)
			st := open(t, srv.Client(), bucket)
			_, err := st.Get(t.Context(), "absent", "")
			wantKind(t, "get", err, store.ErrNotExist)
			_, _, err = st.GetLarge(t.Context(), "absent")
			wantKind(t, "get of a large object", err, store.ErrNotExist)
			if name != "s3rver" { // which creates it, whatever the condition
				_, err = st.Put(t.Context(), "absent", []byte("x"), store.IfMatch(`"9e107d9d372bb6826bd81d3542a419d6"`))
				if !errors.Is(err, store.ErrNotExist) && !errors.Is(err, store.ErrPrecondition) {
					t.Errorf("update: %v", err)
				}
			}
			if err = st.Delete(t.Context(), "absent"); err != nil {
				t.Errorf("delete: %v", err)
			}

			none := open(t, srv.Client(), "no-such-bucket")
			_, err = none.Get(t.Context(), "absent", "")
			wantKind(t, "get in no bucket", err, store.ErrNoBucket)
			_, err = none.Put(t.Context(), "absent", []byte("x"), store.IfAbsent())
			wantKind(t, "create in no bucket", err, store.ErrNoBucket)
			for _, err = range none.List(t.Context(), "", "") {
				wantKind(t, "list of no bucket", err, store.ErrNoBucket)
			}

			// With an access key that nobody knows nothing is absent. Of versitygw, which
			// says 404, everything was.
			stranger := open(t, client(srv.Endpoint, func(o *s3.Options) {
				o.Credentials = credentials.NewStaticCredentialsProvider("stranger", "secret", "")
			}), bucket)
			if _, err = stranger.Get(t.Context(), "absent", ""); name != "gofakes3" && !store.Final(err) { // which lets everybody in
				t.Errorf("get by a stranger: %v", err)
			}
		})
	}
}

func wantKind(t *testing.T, what string, err, kind error) {
	t.Helper()
	if e, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(e.Kind, kind) {
		t.Errorf("%s: %v, want the kind %v", what, err, kind)
	}
}
