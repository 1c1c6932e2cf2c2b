package azstore

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzRefusal: whatever a server says with an error, the message is one line, and the body can be read again.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte("\ufeff<?xml version=\"1.0\"?><Error><Code>BlobNotFound</Code><Message>none\nRequestId:7</Message></Error>"), "BlobNotFound")
	f.Add([]byte(`<Error><HeaderName>If-Match</HeaderName>`), "")
	f.Add([]byte(`<html>`), "")
	f.Fuzz(func(t *testing.T, body []byte, code string) {
		answer := &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{codeHeader: {code}}, Body: io.NopCloser(bytes.NewReader(body))}
		if r := refuse(answer); strings.Contains(r.Message, "\n") {
			t.Errorf("the message is %q", r.Message)
		}
		if again, err := io.ReadAll(answer.Body); err != nil || !bytes.HasPrefix(body, again) {
			t.Errorf("%q is read again as %q, %v", body, again, err)
		}
	})
}
