package storeurl

import (
	"net/http"
	"testing"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// TestConnectionsAreBounded: docs/sessions.md says how many connections a client opens, and how many it
// keeps. Those who take many locks over have 640 requests under way.
func TestConnectionsAreBounded(t *testing.T) {
	client, ok := closable(awshttp.NewBuildableClient()).(*http.Client)
	if !ok {
		t.Fatal("it is no http.Client")
	}
	tr, ok := client.Transport.(*http.Transport)
	if !ok {
		t.Fatalf("its transport is a %T", client.Transport)
	}
	if tr.MaxConnsPerHost != 2048 || tr.MaxIdleConnsPerHost != 10 || tr.MaxIdleConns != 100 || tr.IdleConnTimeout.Seconds() != 90 {
		t.Errorf("up to %d connections to a host, of which %d are kept, %d in all, for %v",
			tr.MaxConnsPerHost, tr.MaxIdleConnsPerHost, tr.MaxIdleConns, tr.IdleConnTimeout)
	}
}
