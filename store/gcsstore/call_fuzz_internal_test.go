package gcsstore

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzRefusal: whatever a server says with an error, the message is one line.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte(`{"error":{"code":412,"message":"At least one\nof the conditions","errors":[{"reason":"conditionNotMet"}]}}`), true)
	f.Add([]byte(`{"error":{"errors":[]}}`), false)
	f.Add([]byte(`plain text`), true)
	f.Fuzz(func(t *testing.T, body []byte, google bool) {
		answer := &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))}
		if google {
			answer.Header.Set(requestIDHeader, "7")
		}
		if r := refuse(answer); strings.ContainsAny(r.Message, "\r\n") || r.google != google {
			t.Errorf("the message is %q, of Google %t", r.Message, r.google)
		}
	})
}
