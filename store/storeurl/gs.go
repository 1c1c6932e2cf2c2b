package storeurl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/gcsstore"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

// gsScope is the scope of the tokens: reading and writing objects.
const gsScope = "https://www.googleapis.com/auth/devstorage.read_write"

// Variables that Google's own libraries read.
const (
	gsCredentials = "GOOGLE_APPLICATION_CREDENTIALS"
	gsEmulator    = "STORAGE_EMULATOR_HOST"
)

func openGS(ctx context.Context, u *url.URL, query url.Values) (store.Store, error) {
	endpoint, err := endpointOf(u, query)
	if err != nil {
		return nil, err
	}
	if at, _ := url.Parse(endpoint); endpoint != "" {
		if why := splits(u, at, false); why != "" {
			return nil, bad(u, why)
		}
	}
	anonymous, err := boolean(u, query, "anonymous")
	if err != nil {
		return nil, err
	}
	opts := &gcsstore.Options{Prefix: prefixOf(u), Endpoint: endpoint, UserProject: query.Get("user_project"), OwnClient: true}
	signed := endpoint == "" || overTLS(endpoint)
	if host := os.Getenv(gsEmulator); host != "" && endpoint == "" {
		if opts.Endpoint = emulator(host); opts.Endpoint == "" {
			return nil, fmt.Errorf("open gs://%s: %s is neither HOST:PORT nor a URL of the form http://HOST:PORT", u.Host, gsEmulator)
		}
		signed = false // as with Google's libraries
	}
	if anonymous != nil {
		signed = !*anonymous
	}
	if signed {
		if opts.Endpoint != "" && !overTLS(opts.Endpoint) {
			return nil, bad(u, "credentials are sent over https only, and the endpoint is none of https: leave anonymous=false out")
		}
		if err = checkGoogle(ctx); err != nil {
			return nil, fmt.Errorf("open gs://%s: %w", u.Host, err)
		}
		k := &kept[string]{fetch: func(ctx context.Context) (string, validity, error) { return valid(googleToken(ctx)) }}
		opts.Token, opts.TokenRefused = k.get, k.refuse
	}
	st, err := gcsstore.New(&http.Client{Transport: gsTransport()}, u.Host, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return st, nil
}

// gsTransport keeps as many connections as that of S3. It uses HTTP/1.1, where a cancelled
// request closes its connection, so the next one does not wait on a dead connection. With
// HTTP/2, all requests share one.
func gsTransport() *http.Transport {
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		Protocols:           only1,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns:        100,
		MaxIdleConnsPerHost: 10,
		MaxConnsPerHost:     2048,
		IdleConnTimeout:     90 * time.Second,
	}
}

// emulator returns the endpoint for a STORAGE_EMULATOR_HOST value, which may have no scheme, or
// "".
func emulator(host string) string {
	if !strings.Contains(host, "://") {
		host = "http://" + host
	}
	u, err := url.Parse(host)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// checkGoogle returns an error if there is an invalid credentials file. It sends nothing: the
// metadata server is looked up when the first token is needed.
func checkGoogle(ctx context.Context) error {
	if googleFile() == "" {
		return nil
	}
	_, err := findGoogle(ctx)
	return err
}

// badFile says which file cannot be used, and why.
func badFile(err error) error {
	return fmt.Errorf("the credentials in %s cannot be used: %s", googleFile(), oneLine(err.Error()))
}

// googleFile returns the credentials file that Google's libraries would use, or "" if none is
// configured and gcloud's does not exist.
func googleFile() string {
	if file := os.Getenv(gsCredentials); file != "" {
		return file
	}
	file := gcloudFile()
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// gcloudFile returns the file written by "gcloud auth application-default login".
func gcloudFile() string {
	const name = "application_default_credentials.json"
	if runtime.GOOS == "windows" {
		return filepath.Join(os.Getenv("APPDATA"), "gcloud", name)
	}
	home, _ := os.UserHomeDir() // without one, the file does not exist
	return filepath.Join(home, ".config", "gcloud", name)
}

// findGoogle returns the present Application Default Credentials: a file may have been
// replaced.
func findGoogle(ctx context.Context) (*google.Credentials, error) {
	creds, err := google.FindDefaultCredentials(ctx, gsScope)
	if err != nil && googleFile() != "" {
		return nil, badFile(err)
	}
	if err != nil || creds.JSON == nil {
		return creds, err
	}
	var file struct{ Type string }
	if err := json.Unmarshal(creds.JSON, &file); err != nil || file.Type == "" {
		// The library accepts it, and calls a nil function when a token is needed.
		return nil, badFile(errors.New("they name a program to Google, and nobody who may use a bucket; write others with \"gcloud auth application-default login\", or take the key of a service account"))
	}
	return creds, nil
}

// gsEarly is how long before their expiry tokens are replaced: from then on, the metadata
// server returns new ones.
const gsEarly = 225 * time.Second

// valid returns a token and how long it is used.
func valid(token *oauth2.Token, err error) (string, validity, error) {
	switch {
	case err != nil:
		return "", validity{}, err
	case token.Expiry.IsZero():
		return token.AccessToken, validity{}, nil
	}
	return token.AccessToken, validity{renew: token.Expiry.Add(-gsEarly), ends: token.Expiry}, nil
}

// googleToken requests a token. Its error is a tokenError.
func googleToken(ctx context.Context) (*oauth2.Token, error) {
	client := &watchedClient{}
	// The library uses the context's client, but not always its cancellation.
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: client, Timeout: fetchWithin, CheckRedirect: exchange.NoRedirects})
	creds, err := findGoogle(ctx)
	switch {
	case err != nil && googleFile() == "":
		return nil, &tokenError{store.ErrDenied, fmt.Sprintf("there are no credentials: %s is not set, there is no file %s, and no metadata server of Google Cloud answers; "+
			"set %[1]s to the file of a service account's key, or run \"gcloud auth application-default login\", or write anonymous=true for a bucket that is open to everybody", gsCredentials, gcloudFile()), nil}
	case err != nil:
		return nil, &tokenError{store.ErrDenied, err.Error(), nil}
	}
	token, err := creds.TokenSource.Token()
	if err != nil {
		return nil, noGoogleToken(err, &client.outcome)
	}
	return token, nil
}

// A watchedClient sends the requests for one token.
type watchedClient struct{ outcome outcome }

func (c *watchedClient) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(req)
	c.outcome.note(answer, err)
	return answer, err
}

// noGoogleToken judges why there is no token despite credentials. The metadata server has a
// client of its own, whose errors include the status.
func noGoogleToken(err error, o *outcome) error {
	where := cmp.Or(googleFile(), "the metadata server of Google Cloud")
	e := &tokenError{store.ErrDenied, fmt.Sprintf("no token by the credentials of %s: %s", where, googleWords(err)), nil}
	answer, answered := errors.AsType[*metadata.Error](err)
	_, nobody := errors.AsType[metadata.NotDefinedError](err)
	switch {
	case nobody:
		e.text += "; give this machine a service account"
	case answered && !refuses(answer.Code), o.unanswered():
		e.kind = store.ErrUnavailable
	case !answered && googleFile() == "":
		e.kind = store.ErrUnavailable // the metadata server could not be reached
	}
	return e
}

// googleWords returns Google's message for a refusal, on one line.
func googleWords(err error) string {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || refused.Response == nil {
		return oneLine(err.Error())
	}
	said := struct {
		Error       string
		Description string `json:"error_description"`
	}{refused.ErrorCode, refused.ErrorDescription}
	text := refused.Response.Status
	if json.Unmarshal(refused.Body, &said) == nil && said.Error != "" {
		text += ", " + said.Error
	}
	if said.Description != "" {
		text += ": " + said.Description
	}
	return oneLine(text)
}

// oneLine returns a text without line breaks and with a limited length.
func oneLine(text string) string {
	const most = 600
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}
