package fencehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencehttp"
)

func ExampleMiddleware() {
	orders := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "done") })
	gate := fence.NewGate(new(fence.Memory))
	server := httptest.NewServer(fencehttp.Middleware(gate, nil)(orders))
	defer server.Close()

	for _, token := range []fence.Token{41, 42, 41} {
		client := &http.Client{Transport: &fencehttp.Transport{Holder: token}}
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL+"/orders/7", strings.NewReader("ship"))
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(resp.StatusCode, errors.Is(fencehttp.FromResponse(resp), fence.ErrFenced))
		_ = resp.Body.Close()
	}
	// Output:
	// 200 false
	// 200 false
	// 412 true
}
