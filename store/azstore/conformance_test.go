package azstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/appendblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
	"github.com/leasehold/leasehold/store/storetest"
)

const prefix = "some/prefix"

// planted is a store with a second way in, which storetest uses to write objects
// that no store would.
type planted struct {
	*azstore.Store
	client *container.Client
}

func (p *planted) Plant(ctx context.Context, key string, body []byte) error {
	_, err := p.client.NewBlockBlobClient(prefix+"/"+key).UploadBuffer(ctx, body, nil)
	return err
}

// newContainer makes an empty container and gives the SDK's client for it.
func newContainer(t testing.TB, srv *servers.Azurite) *container.Client {
	t.Helper()
	client, err := container.NewClientFromConnectionString(srv.ConnectionString(), "test-"+strings.ToLower(rand.Text()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return client
}

// open gives a store of the container, by the key of the account.
func open(t testing.TB, srv *servers.Azurite, client *container.Client) *planted {
	t.Helper()
	key, err := container.NewSharedKeyCredential(srv.Account, srv.Key)
	if err != nil {
		t.Fatal(err)
	}
	st, err := azstore.New(client.URL(), &azstore.Options{Prefix: prefix, SharedKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return &planted{st, client}
}

// signed gives the URL of the container at an endpoint, with a SAS of those permissions that
// is valid for d from now.
func signed(t testing.TB, srv *servers.Azurite, client *container.Client, endpoint string, may sas.ContainerPermissions, d time.Duration) string {
	t.Helper()
	key, err := container.NewSharedKeyCredential(srv.Account, srv.Key)
	if err != nil {
		t.Fatal(err)
	}
	name := client.URL()[strings.LastIndexByte(client.URL(), '/')+1:]
	query, err := sas.BlobSignatureValues{
		ContainerName: name, Permissions: may.String(),
		StartTime: time.Now().UTC().Add(-time.Hour), ExpiryTime: time.Now().UTC().Add(d),
	}.SignWithSharedKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return endpoint + "/" + srv.Account + "/" + name + "?" + query.Encode()
}

var full = sas.ContainerPermissions{Read: true, Create: true, Write: true, Delete: true, List: true}

func host(srv *servers.Azurite) string { return strings.TrimSuffix(srv.Endpoint, "/"+srv.Account) }

func TestConformance(t *testing.T) {
	servers.OnAzure(t, func(t *testing.T, srv *servers.Azurite) {
		storetest.Run(t, func(t *testing.T) store.Store { return open(t, srv, newContainer(t, srv)) })
	})
}

// The negative control: a server that ignores every condition of a write. If the suite does
// not notice, its silence about Azurite proves nothing. Conditions are a part of the signature
// of a key, but not of a SAS.
func TestSuiteNoticesLostConditions(t *testing.T) {
	servers.OnAzure(t, func(t *testing.T, srv *servers.Azurite) {
		transport := &http.Transport{MaxIdleConnsPerHost: 100}
		t.Cleanup(transport.CloseIdleConnections)
		client := &http.Client{Transport: wiretest.Altered{By: transport, Alter: func(r *http.Request) {
			r.Header.Del("If-Match")
			r.Header.Del("If-None-Match")
		}}}
		wiretest.NoticesLostConditions(t, func() (store.Store, error) {
			return azstore.New(signed(t, srv, newContainer(t, srv), host(srv), full, time.Hour), &azstore.Options{Transport: client})
		})
	})
}

// TestCredentials: what the service says of each kind of credentials.
func TestCredentials(t *testing.T) {
	servers.OnAzure(t, func(t *testing.T, srv *servers.Azurite) {
		client := newContainer(t, srv)
		get := func(url string, opts *azstore.Options) error {
			st, err := azstore.New(url, opts)
			if err != nil {
				t.Fatal(err)
			}
			_, err = st.Get(t.Context(), "absent", "")
			return err
		}
		wrong, err := container.NewSharedKeyCredential(srv.Account, "d3Jvbmc=")
		if err != nil {
			t.Fatal(err)
		}
		wantKind(t, "a SAS", get(signed(t, srv, client, host(srv), full, time.Hour), nil), store.ErrNotExist)
		expired := get(signed(t, srv, client, host(srv), full, -time.Minute), nil)
		wantKind(t, "an expired SAS", expired, store.ErrDenied)
		if strings.Contains(expired.Error(), "sig=") {
			t.Errorf("it shows the SAS: %v", expired)
		}
		wantKind(t, "a SAS that may do less", get(signed(t, srv, client, host(srv), sas.ContainerPermissions{List: true}, time.Hour), nil), store.ErrDenied)
		wantKind(t, "another key", get(client.URL(), &azstore.Options{SharedKey: wrong}), store.ErrDenied)
		// On Azure it is a 404 ResourceNotFound, or a 409 PublicAccessNotPermitted: see TestCodes.
		if err = get(client.URL(), nil); !store.Final(err) || errors.Is(err, store.ErrNotExist) {
			t.Errorf("no credentials: %v", err)
		}

		st, err := azstore.NewFromConnectionString(srv.ConnectionString(), "no-such-container", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = st.Get(t.Context(), "absent", "")
		wantKind(t, "get in no container", err, store.ErrNoBucket)
		_, err = st.Put(t.Context(), "absent", []byte("x"), store.IfAbsent())
		wantKind(t, "create in no container", err, store.ErrNoBucket)
		_, err = st.PutLarge(t.Context(), "absent", strings.NewReader("x"))
		wantKind(t, "large put in no container", err, store.ErrNoBucket)
		wantKind(t, "delete in no container", st.Delete(t.Context(), "absent"), store.ErrNoBucket)
		for _, err = range st.List(t.Context(), "", "") {
			wantKind(t, "list of no container", err, store.ErrNoBucket)
		}
	})
}

// TestObstacles: what other users of Azure can put in the way. None of it may look like a rival's
// write: a candidate would try for ever.
func TestObstacles(t *testing.T) {
	srv := servers.StartAzurite(t)
	st := open(t, srv, newContainer(t, srv))

	t.Run("a lease", func(t *testing.T) {
		o, err := st.Put(t.Context(), "leased", []byte("x"), store.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		client, err := lease.NewBlobClient(st.client.NewBlockBlobClient(prefix+"/leased"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = client.AcquireLease(t.Context(), -1, nil); err != nil {
			t.Fatal(err)
		}
		_, err = st.Put(t.Context(), "leased", []byte("y"), store.IfMatch(o.Version))
		wantKind(t, "update", err, store.ErrRefused)
		wantKind(t, "delete", st.Delete(t.Context(), "leased"), store.ErrRefused)
	})
	t.Run("a snapshot", func(t *testing.T) {
		o, err := st.Put(t.Context(), "snapped", []byte("x"), store.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = st.client.NewBlobClient(prefix+"/snapped").CreateSnapshot(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		err = st.Delete(t.Context(), "snapped")
		wantKind(t, "delete", err, store.ErrRefused)
		if !strings.Contains(err.Error(), "snapshots") {
			t.Errorf("it says %v", err)
		}
		if _, err = st.Put(t.Context(), "snapped", []byte("y"), store.IfMatch(o.Version)); err != nil {
			t.Errorf("update: %v", err)
		}
	})
	t.Run("an append blob", func(t *testing.T) {
		client := st.client.NewAppendBlobClient(prefix + "/appended")
		if _, err := client.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := client.AppendBlock(t.Context(), streaming.NopCloser(strings.NewReader("x")), &appendblob.AppendBlockOptions{}); err != nil {
			t.Fatal(err)
		}
		o, err := st.Get(t.Context(), "appended", "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = st.Put(t.Context(), "appended", []byte("y"), store.IfAbsent())
		wantKind(t, "create", err, store.ErrPrecondition)
		// Azurite overwrites it with a block blob; if Azure does not, see TestCodes.
		if _, err = st.Put(t.Context(), "appended", []byte("y"), store.IfMatch(o.Version)); err != nil {
			wantKind(t, "update", err, store.ErrRefused)
		}
	})
}

func wantKind(t *testing.T, what string, err, kind error) {
	t.Helper()
	if e, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(e.Kind, kind) {
		t.Errorf("%s: %v, want the kind %v", what, err, kind)
	}
}
