package fence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencehttp"
	"github.com/leasehold/leasehold/store/memstore"
)

// Two holders of a lock write the same object. The tokens come from their leases; here
// they are numbers.
func ExampleObject() {
	ctx := context.Background()
	st := memstore.New()
	former, _ := fence.NewObject(st, "state.json", nil)
	_ = former.Put(ctx, fence.Token(41), strings.NewReader(`{"step": 1}`))

	next, _ := fence.NewObject(st, "state.json", nil)
	v, _ := next.Claim(ctx, fence.Token(42))
	body, _ := v.ReadAll(ctx)
	fmt.Println("claimed", string(body))

	err := former.Put(ctx, fence.Token(41), strings.NewReader(`{"step": 2}`))
	fmt.Println(err)
	// Output:
	// claimed {"step": 1}
	// mem:// state.json refuses token 41: a holder with token 42 has claimed it
}

func ExampleLog() {
	ctx := context.Background()
	log, _ := fence.NewLog(memstore.New(), "orders")
	former, _ := log.Claim(ctx, fence.Token(41))
	_, _ = former.Append(ctx, []byte("one"))

	next, _ := log.Claim(ctx, fence.Token(42))
	_, err := former.Append(ctx, []byte("late"))
	fmt.Println(errors.Is(err, fence.ErrFenced))
	_, _ = next.Append(ctx, []byte("two"), []byte("three"))
	for e, err := range log.Read(ctx, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d, token %v: %s\n", e.Position, e.Token, e.Records)
	}
	// Output:
	// true
	// 2, token 41: [one]
	// 4, token 42: [two three]
}

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
