package azstore

import (
	"net/http"
	"testing"
)

// TestOwnClient: docs/sessions.md says how many connections a client opens. It goes by the proxy of the environment, and
// no server keeps it waiting without an end.
func TestOwnClient(t *testing.T) {
	tr, ok := ownClient().Transport.(*http.Transport)
	if !ok {
		t.Fatal("it has another transport")
	}
	if tr.MaxConnsPerHost != 2048 || tr.MaxIdleConnsPerHost != 100 || tr.IdleConnTimeout.Seconds() != 90 ||
		tr.TLSHandshakeTimeout.Seconds() != 10 || tr.Proxy == nil || !tr.DisableCompression || !tr.ForceAttemptHTTP2 {
		t.Errorf("it is %+v", tr)
	}
}
