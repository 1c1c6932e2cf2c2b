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

// An Azurite is a running emulator of Azure Blob Storage with one account.
type Azurite struct {
	Endpoint string // of the account: http://127.0.0.1:PORT/ACCOUNT
	Account  string
	Key      string // of the account, in base64
	// Process can be paused and resumed. If it is killed, its latest writes are lost.
	Process *Server
}

// AzuriteAhead installs the emulator, for a test that starts it without access to packages. It
// skips the test if packages are not accessible here either.
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

// ConnectionString returns the account in the format of Azure's tools.
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

// URL returns the URL of a store ("container") or a lock ("container/key") on the emulator,
// without credentials: see [Azurite.Env].
func (a *Azurite) URL(container string) string { return a.URLAt(a.Endpoint, container) }

// URLAt is like URL, for a proxy in front of the emulator. The endpoint includes the account.
func (a *Azurite) URLAt(endpoint, container string) string {
	return "azblob://" + container + "?endpoint=" + endpoint
}

// Host returns the emulator's endpoint without the account, for a proxy.
func (a *Azurite) Host() string { return strings.TrimSuffix(a.Endpoint, "/"+a.Account) }

// SAS returns a SAS with all permissions locks need in the container, as a query. It is valid
// for d; with a negative d it has already expired.
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

// Append makes an append blob with some text. Stores never write this kind.
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

// Env returns the environment variables with which another process reaches the emulator.
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
// it when the test ends. It skips the test if npm is missing or cannot reach packages. Subtests
// may share it, each with its own container.
func StartAzurite(t testing.TB) *Azurite {
	t.Helper()
	skip(t, "azurite")
	script := azuriteScript(t)
	a := &Azurite{Account: accessKey, Key: base64.StdEncoding.EncodeToString([]byte(secretKey))}
	server := start(t, "azurite", answersHTTP, func(port *port, dir string) command {
		host, number := port.split()
		return command{
			path: "node",
			// Data is on disk, because the memory mode hangs after ten minutes. SDKs ask for
			// newer versions of the service than the emulator knows, so it must not check the
			// version.
			args: []string{script, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", dir, "--blobHost", host, "--blobPort", number},
			env:  []string{"AZURITE_ACCOUNTS=" + a.Account + ":" + a.Key},
		}
	})
	a.Endpoint, a.Process = server.Endpoint+"/"+a.Account, server
	return a
}

// answersHTTP reports whether a server serves any requests.
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
