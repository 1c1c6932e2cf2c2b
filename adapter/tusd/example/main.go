// Command example is two tusd servers that share a directory, and an upload that goes from one to the other.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	tusstore "github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"

	leasetusd "github.com/leasehold/leasehold/adapter/tusd"
	"github.com/leasehold/leasehold/store/filestore"
)

func main() {
	a, b := serve(os.Args[1]), serve(os.Args[1])
	created := send(a, "POST", "/", "", "Upload-Length", "11")
	upload := strings.TrimPrefix(created.Get("Location"), "http://example.com")
	send(a, "PATCH", upload, "hello ", "Upload-Offset", "0")
	at := send(b, "HEAD", upload, "").Get("Upload-Offset")
	fmt.Println("the other server goes on at", send(b, "PATCH", upload, "world", "Upload-Offset", at).Get("Upload-Offset"))
	must(0, a.locker.Close(context.Background()))
	must(0, b.locker.Close(context.Background()))
}

type server struct {
	*handler.Handler
	locker *leasetusd.Locker
}

func serve(dir string) server {
	locker := must(leasetusd.New(must(filestore.New(dir+"/locks", nil)), nil)) // or storeurl.Open(ctx, "s3://bucket/locks")
	composer := handler.NewStoreComposer()
	tusstore.New(dir).UseIn(composer) // or s3store
	config := handler.Config{BasePath: "/", StoreComposer: composer}
	locker.Configure(&config)
	return server{must(handler.NewHandler(config)), locker}
}

// send is what a client does.
func send(s server, method, path, body string, header ...string) http.Header {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, w := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)), httptest.NewRecorder()
	r.Header.Set("Tus-Resumable", "1.0.0")
	r.Header.Set("Content-Type", "application/offset+octet-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	s.ServeHTTP(w, r)
	if w.Code >= http.StatusBadRequest {
		panic(w.Body.String())
	}
	return w.Result().Header
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
