package peer_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store/memstore"
)

// A handler in a server that is there already, and the question that a follower, or
// anybody else, may ask.
func Example() {
	ctx := context.Background()
	el, err := leasehold.NewElection(memstore.New(), "leaders/scheduler", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "web-1"}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err = el.Campaign(ctx); err != nil {
		log.Fatal(err)
	}
	server := httptest.NewTLSServer(peer.NewHandler(&peer.HandlerOptions{Token: "open-sesame"}, el))
	defer server.Close()

	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client, err := peer.NewClient(&peer.ClientOptions{RootCAs: roots, Token: "open-sesame"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	q := peer.Question{Lock: "leaders/scheduler"}
	said, err := client.Ask(ctx, server.Listener.Addr().String(), q)
	fmt.Println(said.Leading, said.Holder, err)

	if err = el.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	said, err = client.Ask(ctx, server.Listener.Addr().String(), q)
	fmt.Println(said.Leading, said.Holder, err)
	// Output:
	// true web-1 <nil>
	// false web-1 <nil>
}
