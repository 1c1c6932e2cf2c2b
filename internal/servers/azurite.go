package servers

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"testing"
)

// An Azurite is a running emulator of Azure Blob Storage, with one account.
type Azurite struct {
	Endpoint string // of the account: http://127.0.0.1:PORT/ACCOUNT
	Account  string
	Key      string // of the account, in base64
}

// ConnectionString gives the account in the form that Azure's tools take.
func (a *Azurite) ConnectionString() string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;", a.Account, a.Key, a.Endpoint)
}

// StartAzurite starts Azurite with an empty data directory, waits until it answers, and stops
// it when the test ends. The test is skipped where npm is not there or reaches no packages.
// Subtests may share it, each with a container of its own.
func StartAzurite(t testing.TB) *Azurite {
	t.Helper()
	skip(t, "azurite")
	script, err := installAzurite(t.Context())
	if errors.Is(err, errNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
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
	a.Endpoint = server.Endpoint + "/" + a.Account
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
