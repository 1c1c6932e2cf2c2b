package s3store

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzRefusal: whatever a server says with an error, it is read without more than is there, and can be read again.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte(`<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>none</Message><RequestId>7</RequestId></Error>`))
	f.Add([]byte(`<ErrorResponse><Error><Code>X</Code></Error></ErrorResponse>`))
	f.Add([]byte(`<html><body>502`))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer := &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))}
		r := refuse(answer)
		if r.Code != strings.TrimSpace(r.Code) || len(r.Code)+len(r.Message) > 4*len(body)+16 {
			t.Errorf("the code is %q and the message %q", r.Code, r.Message)
		}
		if again, err := io.ReadAll(answer.Body); err != nil || !bytes.HasPrefix(body, again) {
			t.Errorf("%q is read again as %q, %v", body, again, err)
		}
	})
}
