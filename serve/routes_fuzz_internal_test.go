package serve

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// FuzzBody: whatever a caller sends, it is refused with a word, or it is one JSON object in which each name stands once.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"wait":"30s","ttl":"15s","holder":"me","meta":{"k":"v"}}`))
	f.Add([]byte(`{"wait":"0s","wait":"1s"}`))
	f.Add([]byte(`{"Wait":"0s"}`))
	f.Add([]byte(`{}{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var into acquireBody
		if err := decodeStrictly(body, &into); err != nil {
			if _, is := errors.AsType[*refusal](err); !is || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("it is refused with %q", err)
			}
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatalf("%q was accepted: %v", body, err)
		}
		for name := range members {
			switch name {
			case "id", "wait", "ttl", "holder", "meta", "slots", "weight", "shared", "fair":
			default:
				t.Errorf("the member %q was accepted", name)
			}
		}
	})
}

// FuzzRoute: whatever is in the address, it leads to a route that is known, or to none.
func FuzzRoute(f *testing.F) {
	f.Add("POST", "/v1/locks/a%2Fb/acquire")
	f.Add("GET", "/v1/leases/x?wait=30s")
	f.Add("HEAD", "//v1/locks/../acquire")
	f.Fuzz(func(t *testing.T, method, path string) {
		found := MatchRoute(method, path)
		if found == "" {
			return
		}
		for _, route := range Routes() {
			if route[1] == found && (route[0] == method || method == "HEAD" && route[0] == "GET") {
				return
			}
		}
		t.Errorf("%s %q leads to %q, which is no route", method, path, found)
	})
}
