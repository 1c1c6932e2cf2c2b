package servers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// An Azurite is a running emulator of Azure Blob Storage, with one account.
type Azurite struct {
	Endpoint string // of the account: http://127.0.0.1:PORT/ACCOUNT
	Account  string
	Key      string // of the account, in base64
	// Process can be paused and resumed. What it was told last is lost if it is killed.
	Process *Server
}

// AzuriteAhead installs the emulator, for a test that starts it where no packages can be reached.
// The test is skipped where there are none here either.
func AzuriteAhead(t testing.TB) {
	t.Helper()
	skip(t, "azurite")
	azuriteScript(t)
}

func azuriteScript(t testing.TB) string {
	t.Helper()
	script, err := installAzurite(t.Context())
	if errors.Is(err, errNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// ConnectionString gives the account in the form that Azure's tools take.
func (a *Azurite) ConnectionString() string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;", a.Account, a.Key, a.Endpoint)
}

// Container makes an empty container with a random name and returns the name.
func (a *Azurite) Container(t testing.TB) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text())
	client, err := container.NewClientFromConnectionString(a.ConnectionString(), name, nil)
	if err == nil {
		_, err = client.Create(t.Context(), nil)
	}
	if err != nil {
		t.Fatalf("azurite: make container %s: %v", name, err)
	}
	return name
}

// URL gives the URL of a store ("container") or a lock ("container/key") on the emulator. The
// credentials are not in it: see [Azurite.Env].
func (a *Azurite) URL(container string) string { return a.URLAt(a.Endpoint, container) }

// URLAt is URL for a proxy that stands before the emulator: its endpoint is that of the account.
func (a *Azurite) URLAt(endpoint, container string) string {
	return "azblob://" + container + "?endpoint=" + endpoint
}

// Host gives the endpoint of the emulator itself, for a proxy.
func (a *Azurite) Host() string { return strings.TrimSuffix(a.Endpoint, "/"+a.Account) }

// SAS gives a SAS of all that locks need in the container, as a query, which is valid for d from
// now on: less than nothing, and it has expired.
func (a *Azurite) SAS(t testing.TB, container string, d time.Duration) string {
	t.Helper()
	key, err := service.NewSharedKeyCredential(a.Account, a.Key)
	if err != nil {
		t.Fatal(err)
	}
	may := sas.ContainerPermissions{Read: true, Create: true, Write: true, Delete: true, List: true}
	query, err := sas.BlobSignatureValues{
		ContainerName: container, Permissions: may.String(),
		StartTime: time.Now().UTC().Add(-time.Hour), ExpiryTime: time.Now().UTC().Add(d),
	}.SignWithSharedKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return query.Encode()
}

// Append makes an append blob, of the kind that no store writes, with a word in it.
func (a *Azurite) Append(ctx context.Context, containerName, name string) error {
	client, err := container.NewClientFromConnectionString(a.ConnectionString(), containerName, nil)
	if err != nil {
		return err
	}
	blob := client.NewAppendBlobClient(name)
	if _, err = blob.Create(ctx, nil); err == nil {
		_, err = blob.AppendBlock(ctx, streaming.NopCloser(strings.NewReader("word")), nil)
	}
	return err
}

// Env gives the environment variables with which another process reaches the emulator.
func (a *Azurite) Env() []string {
	return []string{
		"AZURE_STORAGE_ACCOUNT=" + a.Account,
		"AZURE_STORAGE_KEY=" + a.Key,
		"AZURE_STORAGE_CONNECTION_STRING=",
		"AZURE_STORAGE_SAS_TOKEN=",
		"AZURE_STORAGE_AUTH_MODE=",
	}
}

// StartAzurite starts Azurite with an empty data directory, waits until it answers, and stops
// it when the test ends. The test is skipped where npm is not there or reaches no packages.
// Subtests may share it, each with a container of its own.
func StartAzurite(t testing.TB) *Azurite {
	t.Helper()
	skip(t, "azurite")
	script := azuriteScript(t)
	a := &Azurite{Account: accessKey, Key: base64.StdEncoding.EncodeToString([]byte(secretKey))}
	server := start(t, "azurite", answersHTTP, func(port *port, dir string) command {
		host, number := port.split()
		return command{
			path: "node",
			// On disk: in its memory mode it hangs after ten minutes. It knows the versions of
			// the service up to some, and SDKs ask for newer ones.
			args: []string{script, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", dir, "--blobHost", host, "--blobPort", number},
			env:  []string{"AZURITE_ACCOUNTS=" + a.Account + ":" + a.Key},
		}
	})
	a.Endpoint, a.Process = server.Endpoint+"/"+a.Account, server
	return a
}

// answersHTTP is how a server of no other kind shows that it serves requests.
func answersHTTP(ctx context.Context, s *Server) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
