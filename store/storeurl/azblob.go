package storeurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
)

// Variables that Azure's own tools read.
const (
	azAccount    = "AZURE_STORAGE_ACCOUNT"
	azConnection = "AZURE_STORAGE_CONNECTION_STRING"
	azKey        = "AZURE_STORAGE_KEY"
	azSAS        = "AZURE_STORAGE_SAS_TOKEN"
	azMode       = "AZURE_STORAGE_AUTH_MODE"
)

var (
	accountName   = onDemand(`^[a-z0-9]{3,24}$`)
	containerName = onDemand(`^[a-z0-9](-?[a-z0-9]){2,62}$`)
)

// onDemand returns an expression that is compiled on first use. Most processes use none, and
// compiling all of them would be a large part of the command's start time.
func onDemand(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// An azPlace is a container, as given by a URL and the environment.
type azPlace struct {
	u         *url.URL
	prefix    string
	asked     string // the account in the URL, or ""
	endpoint  string // of the account, from the URL, or ""
	fromPoint string // the account in the endpoint, or ""
}

func openAzblob(u *url.URL, query url.Values) (store.Store, error) {
	endpoint, err := endpointOf(u, query)
	if err != nil {
		return nil, err
	}
	p := azPlace{u: u, prefix: prefixOf(u), asked: query.Get("account"), endpoint: strings.TrimSuffix(endpoint, "/")}
	if err = p.check(); err != nil {
		return nil, err
	}
	st, err := p.open()
	if err != nil {
		return nil, err // not a Store that holds a nil
	}
	return st, nil
}

// check checks the URL alone.
func (p *azPlace) check() error {
	if p.asked != "" && !accountName().MatchString(p.asked) {
		return bad(p.u, "the account is no name of 3 to 24 small letters and digits, as in https://ACCOUNT.blob.core.windows.net")
	}
	if p.endpoint == "" {
		return nil
	}
	at, _ := url.Parse(p.endpoint) // endpointOf has parsed it before
	path := strings.Trim(at.Path, "/")
	switch isAddress := at.Hostname() == "localhost" || net.ParseIP(at.Hostname()) != nil; {
	case strings.Contains(path, "/"):
		return bad(p.u, "the endpoint is that of the account, without the container: http://127.0.0.1:10000/devstoreaccount1")
	case path != "" && strings.Contains(at.Hostname(), ".blob."), path == p.u.Host && p.asked != path:
		at.Path = ""
		return bad(p.u, fmt.Sprintf("the endpoint ends with the container, which would be named twice: write azblob://%s/KEY?endpoint=%s (if that is the account's name, too, add &account=%s)", p.u.Host, at.String(), path))
	case path != "":
		p.fromPoint = path
	case isAddress:
		return bad(p.u, "an endpoint that is an address ends with the account: http://127.0.0.1:10000/devstoreaccount1")
	default:
		// ACCOUNT.blob.core.windows.net, ACCOUNT.z01.blob.storage.azure.net; a custom domain
		// contains no account.
		if name, rest, _ := strings.Cut(at.Hostname(), "."); strings.Contains("."+rest, ".blob.") {
			p.fromPoint = name
		}
	}
	if p.asked != "" && p.fromPoint != "" && p.asked != p.fromPoint {
		return bad(p.u, fmt.Sprintf("the endpoint is that of the account %q, and the parameter account names another", p.fromPoint))
	}
	return nil
}

func (p *azPlace) fail(format string, args ...any) error {
	return fmt.Errorf("open azblob://%s: %w", p.u.Host, fmt.Errorf(format, args...))
}

// open uses the first credentials that exist, in the order of the Azure CLI: the connection
// string, the key, the SAS, an identity.
func (p *azPlace) open() (*azstore.Store, error) {
	connection, key, sas := os.Getenv(azConnection), os.Getenv(azKey), os.Getenv(azSAS)
	switch mode := os.Getenv(azMode); mode {
	case "":
	case "key":
		if connection == "" && key == "" && sas == "" {
			return nil, p.fail("%s is key, and there is none: set %s, %s or %s", azMode, azConnection, azKey, azSAS)
		}
	case "login":
		connection, key, sas = "", "", ""
	default:
		return nil, p.fail("%s is neither key nor login", azMode)
	}
	if connection != "" {
		return p.connect(connection)
	}
	containerURL, account, err := p.address(key != "" || sas != "")
	if err != nil {
		return nil, err
	}
	opts := &azstore.Options{Prefix: p.prefix}
	switch {
	case key != "":
		if account == "" {
			return nil, p.fail("the endpoint does not tell the account of the key: add account=… to the URL, or set %s", azAccount)
		}
		if opts.SharedKey, err = container.NewSharedKeyCredential(account, key); err != nil {
			return nil, p.fail("%s is no key of an account: %w", azKey, err)
		}
	case sas != "":
		containerURL += "?" + strings.TrimPrefix(sas, "?")
	case !overTLS(containerURL):
		return nil, p.fail("there are no credentials: the endpoint is none of https, over which alone the token of an identity is sent, and neither %s, %s nor %s is set", azConnection, azKey, azSAS)
	default:
		if opts.Token, err = newIdentity(); err != nil {
			return nil, p.fail("%w", err)
		}
	}
	st, err := azstore.New(containerURL, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return st, nil
}

// address returns the container's URL and, if known, the account. The variables' credentials
// belong to the account in the variable, and are not sent to another one.
func (p *azPlace) address(signed bool) (containerURL, account string, err error) {
	byURL, byEnv := cmp.Or(p.asked, p.fromPoint), os.Getenv(azAccount)
	switch account = cmp.Or(byURL, byEnv); {
	case signed && byURL != "" && byEnv != "" && byURL != byEnv:
		return "", "", p.fail("the URL names the account %q, and %s another, whose credentials are in the environment: change one of them", byURL, azAccount)
	case p.endpoint != "":
		return p.endpoint + "/" + p.u.Host, account, nil
	case account == "":
		return "", "", p.fail("no account: add account=… to the URL, or set %s or %s", azAccount, azConnection)
	case !accountName().MatchString(account):
		return "", "", p.fail("%s is no name of 3 to 24 small letters and digits", azAccount)
	}
	return "https://" + account + ".blob.core.windows.net/" + p.u.Host, account, nil
}

// connect opens the container in the account of a connection string, unless another account was
// requested.
func (p *azPlace) connect(connection string) (*azstore.Store, error) {
	st, err := azstore.NewFromConnectionString(connection, p.u.Host, &azstore.Options{Prefix: p.prefix})
	if err != nil {
		return nil, p.fail("%s: %w", azConnection, err)
	}
	account, endpoint := connected(connection, st)
	for _, name := range []struct{ of, is, connected string }{
		{"the account of the URL", cmp.Or(p.asked, p.fromPoint), account},
		{"the endpoint of the URL", p.endpoint, endpoint},
		{azAccount, os.Getenv(azAccount), account},
	} {
		if name.is != "" && name.connected != "" && name.is != name.connected {
			return nil, p.fail("%s has credentials for %s, and %s is %s: change one of them", azConnection, name.connected, name.of, name.is)
		}
	}
	return st, nil
}

// connected returns the account and the endpoint of a connection string, partly from the store
// created with it.
func connected(connection string, st *azstore.Store) (account, endpoint string) {
	for setting := range strings.SplitSeq(connection, ";") {
		if name, value, _ := strings.Cut(setting, "="); name == "AccountName" {
			account = value
		}
	}
	if at, err := url.Parse(st.String()); err == nil {
		account = cmp.Or(account, at.Query().Get("account"))
		endpoint = strings.TrimSuffix(at.Query().Get("endpoint"), "/")
	}
	if endpoint == "" {
		endpoint = "https://" + account + ".blob.core.windows.net"
	}
	return account, endpoint
}

// An identity is the credentials that Azure's libraries find without a secret of the account.
type identity struct {
	chain azcore.TokenCredential
	had   atomic.Bool // there was a token, so there are credentials
}

func newIdentity() (*identity, error) {
	var opts azidentity.DefaultAzureCredentialOptions
	opts.PerRetryPolicies = []policy.Policy{noting{}}
	chain, err := azidentity.NewDefaultAzureCredential(&opts)
	if err != nil {
		return nil, err
	}
	return &identity{chain: chain}, nil
}

// GetToken marks errors with [store.ErrDenied] or [store.ErrUnavailable], because the library's
// errors do not distinguish them. If no credentials are found at all, or a tool such as az
// returns none, it is unknown whether this is temporary. Before the first token it counts as
// permanent, and afterwards as temporary.
func (i *identity) GetToken(ctx context.Context, opts policy.TokenRequestOptions) (azcore.AccessToken, error) {
	o := new(outcome)
	token, err := i.chain.GetToken(context.WithValue(ctx, outcomes{}, o), opts)
	if err == nil {
		i.had.Store(true)
		return token, nil
	}
	text := withoutRules(err)
	if ended := ctx.Err(); ended != nil {
		return token, &tokenError{store.ErrUnavailable, text, ended}
	}
	_, tried := errors.AsType[*azidentity.AuthenticationFailedError](err)
	switch {
	case tried && o.unanswered(), !tried && i.had.Load():
		return token, &tokenError{store.ErrUnavailable, text, nil}
	case tried:
		return token, &tokenError{store.ErrDenied, text, nil}
	}
	return token, &tokenError{store.ErrDenied, fmt.Sprintf("there are no credentials: neither %s, %s nor %s is set, and no identity is found in the environment (AZURE_CLIENT_ID and so on), "+
		"as that of a workload, as a managed one or by a tool; set one of them, or run \"az login\" (%s)", azConnection, azKey, azSAS, text), nil}
}

// withoutRules returns an azidentity error on one line, without its horizontal rules.
func withoutRules(err error) string {
	var words []string
	for word := range strings.FieldsSeq(err.Error()) {
		if strings.Trim(word, "-") != "" {
			words = append(words, word)
		}
	}
	return oneLine(strings.Join(words, " "))
}

type outcomes struct{} // the context key of an outcome

// noting records how requests for tokens end.
type noting struct{}

func (noting) Do(req *policy.Request) (*http.Response, error) {
	answer, err := req.Next()
	if o, ok := req.Raw().Context().Value(outcomes{}).(*outcome); ok {
		o.note(answer, err)
	}
	return answer, err
}
