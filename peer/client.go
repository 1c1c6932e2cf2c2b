package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
)

// ClientOptions are the options of [NewClient]. The zero value and nil mean the defaults.
type ClientOptions struct {
	// RootCAs are the authorities for leaders' certificates; see [ParseCAs]. Default: the
	// system's.
	RootCAs *x509.CertPool
	// Certificate is for leaders that require a client certificate.
	Certificate tls.Certificate
	// ServerName is the name that every leader's certificate must have. Default: the host in
	// its address.
	ServerName string
	// TLS has all other settings; the fields above are added to it. Versions before TLS 1.2 are
	// refused.
	TLS *tls.Config

	// Token is the bearer token of the leaders; see [HandlerOptions.Token].
	Token string
	// Path is the path at which leaders answer, unless an address has its own. Default
	// DefaultPath.
	Path string

	// Timeout is how long a question may take beyond its wait, including the connection.
	// Default 3 s.
	Timeout time.Duration
	// MaxAnswer is the maximum size of an answer's body in bytes. Default 128 KiB, twice the
	// largest record.
	MaxAnswer int64

	// Dial opens connections, to which TLS is added. Default: TCP with a keep-alive that
	// detects within 8 s that the leader's host has vanished.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// ParseCAs parses the PEM certificates of authorities for [ClientOptions.RootCAs] and
// [ServerOptions.ClientCAs]. It fails if there are none.
func ParseCAs(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("there is no certificate in the PEM text of the authorities")
	}
	return pool, nil
}

// ErrClosed: the client was closed. Make another.
var ErrClosed = errors.New("the peer client was closed")

// A Client asks leaders over HTTPS. It is a [leasehold.Peers] for any number of elections, and
// has one connection per election, to its leader. It does not use proxies, follow redirects or
// keep cookies. It is safe for concurrent use.
type Client struct {
	opts      ClientOptions
	transport *http.Transport

	mu      sync.Mutex
	closed  bool
	ctx     context.Context // ends when the client is closed
	cancel  context.CancelCauseFunc
	asking  sync.WaitGroup
	leaders map[string]string // the address last asked about a lock
}

var _ leasehold.Peers = (*Client)(nil)

// NewClient returns a client. It opens no connections. It fails if an option is invalid.
func NewClient(opts *ClientOptions) (*Client, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("peer client: %w", err)
	}
	c := &Client{opts: o, leaders: map[string]string{}}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	// No Proxy, whatever the environment says: proxies must not see who leads. With a DialContext and a
	// TLSClientConfig, it uses only HTTP/1.1.
	c.transport = &http.Transport{
		DialContext:            c.dial,
		TLSClientConfig:        o.TLS,
		TLSHandshakeTimeout:    o.connecting(),
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1 << 20,          // one for each election
		IdleConnTimeout:        15 * time.Second, // the next question follows at once, unless this side leads
		MaxResponseHeaderBytes: 16 << 10,
		ReadBufferSize:         2 << 10,
		WriteBufferSize:        2 << 10,
	}
	return c, nil
}

func (o *ClientOptions) withDefaults() (ClientOptions, error) {
	var opts ClientOptions
	if o != nil {
		opts = *o
	}
	if opts.Timeout == 0 {
		opts.Timeout = 3 * time.Second
	}
	if opts.MaxAnswer == 0 {
		opts.MaxAnswer = 128 << 10
	}
	if opts.Timeout < 0 || opts.MaxAnswer < 0 {
		return opts, fmt.Errorf("a limit is negative: Timeout %v, MaxAnswer %d", opts.Timeout, opts.MaxAnswer)
	}
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	}
	var err error
	if opts.Path, err = checkPath(opts.Path); err != nil {
		return opts, err
	}
	config := &tls.Config{}
	if opts.TLS != nil {
		config = opts.TLS.Clone()
	}
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	if opts.RootCAs != nil {
		config.RootCAs = opts.RootCAs
	}
	if len(opts.Certificate.Certificate) > 0 {
		config.Certificates = []tls.Certificate{opts.Certificate}
	}
	if opts.ServerName != "" {
		config.ServerName = opts.ServerName
	}
	opts.TLS = config
	return opts, checkToken(opts.Token)
}

// connecting is the limit for opening a connection, and again for its TLS handshake. It is
// shorter than that of a question, so the error says which of them was slow.
func (o *ClientOptions) connecting() time.Duration { return o.Timeout * 2 / 3 }

func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	limit := c.opts.connecting()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not in %v", limit))
	defer cancel()
	conn, err := c.opts.Dial(ctx, network, address)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("no connection: %w: is its server running, and its Address the right one?", err)
}

// Close cancels all questions, which fail with [ErrClosed], and closes all connections. Later
// questions fail too. It returns nil; further calls do nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(ErrClosed)
	c.asking.Wait()
	c.transport.CloseIdleConnections()
	return nil
}

// enter begins a question. If it is for another leader than the last one about the lock, enter
// closes idle connections, including the one to the former leader. Another election's question
// may then have to reconnect.
func (c *Client) enter(lock, address string) error {
	if err := c.begin(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, asked := c.leaders[lock]; asked && before != address {
		c.transport.CloseIdleConnections()
	}
	c.leaders[lock] = address
	return nil
}

// open returns a context that also ends with the client, or when end is called.
func (c *Client) open(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// begin begins a request, which Close waits for.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.asking.Add(1)
	return nil
}

// shortest is how long an answer must have been held back for the question to be repeated at
// once.
const shortest = time.Second

// Ask asks the candidate at an address, which is HOST:PORT or an https URL. An address without
// a path gets [ClientOptions.Path]. Ask takes at most q.Wait plus [ClientOptions.Timeout], and
// returns when ctx ends. If the leader answers sooner than after q.Wait, Ask asks again until
// q.Wait is over, at most once a second. Errors name the address and the problem.
func (c *Client) Ask(ctx context.Context, address string, q Question) (Leadership, error) {
	said, err := c.ask(ctx, address, q)
	if err != nil {
		return Leadership{}, fmt.Errorf("asking %s: %w", address, err)
	}
	return said, nil
}

func (c *Client) ask(ctx context.Context, address string, q Question) (Leadership, error) {
	place, err := c.place(address)
	if err != nil {
		return Leadership{}, err
	}
	if err := c.enter(q.Lock, address); err != nil {
		return Leadership{}, err
	}
	defer c.asking.Done()
	ctx, end := c.open(ctx)
	defer end()
	if q.Known == "" {
		q.Wait = 0
	}
	for end := time.Now().Add(q.Wait); ; {
		asked := time.Now()
		said, closes, err := c.once(ctx, place, q) // with an error nobody leads
		q.Wait = time.Until(end)
		if closes || !said.Leading || said.Version != q.Known || time.Since(asked) < shortest || q.Wait < shortest {
			return said, err
		}
	}
}

// place returns the URL of an address without its query.
func (c *Client) place(address string) (*url.URL, error) {
	full := strings.Contains(address, "://")
	if !full {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Scheme != "https", u.Hostname() == "", !full && u.Port() == "", !full && u.Path != "",
		u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, errors.New("that is neither HOST:PORT nor an https URL: correct the Address of that candidate")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = c.opts.Path
	}
	return u, nil
}

func query(q Question) string {
	values := url.Values{"lock": {q.Lock}, "holder": {q.Holder}}
	if q.Waited > 0 {
		values.Set("waited", q.Waited.String())
	}
	if q.Wait > 0 {
		values.Set("wait", q.Wait.String())
		values.Set("version", q.Known)
	}
	return values.Encode()
}

// once sends one request and reads its answer. It reports whether the leader closes the
// connection afterwards, as a server does when it stops.
func (c *Client) once(ctx context.Context, place *url.URL, q Question) (said Leadership, closes bool, err error) {
	u := *place
	u.RawQuery = query(q)
	a, err := c.send(ctx, http.MethodGet, &u, q.Wait+c.opts.Timeout)
	if err != nil {
		return said, closes, err
	}
	said, err = read(a)
	return said, a.Close, err
}

// An answered is an answer whose body was read.
type answered struct {
	*http.Response
	body []byte
}

// send sends one request without a body and reads the answer, within a time limit.
func (c *Client) send(ctx context.Context, method string, to *url.URL, limit time.Duration) (a answered, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer in %v: is the leader overloaded, or another service there?", limit))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return a, err
	}
	r.Header.Set("Accept", "application/json")
	// A nil value is not sent, but makes the transport retry a request that met a closed
	// connection.
	r.Header["Idempotency-Key"] = nil
	if c.opts.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	answer, err := c.transport.RoundTrip(r)
	if err != nil {
		return a, explain(ctx, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, c.opts.MaxAnswer+1))
	if err != nil {
		return a, fmt.Errorf("the answer broke off: %w", explain(ctx, err))
	}
	if int64(len(body)) > c.opts.MaxAnswer {
		return a, fmt.Errorf("the answer has more than %d bytes: is another service there?", c.opts.MaxAnswer)
	}
	return answered{answer, body}, nil
}

// read returns the leadership in an answer, or an error for a response of another service.
func read(answer answered) (Leadership, error) {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	isJSON := kind == "application/json"
	switch status := answer.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return Leadership{}, errToken(answer)
	case status >= 300 && status < 400:
		return Leadership{}, fmt.Errorf("it redirects (%s), which is not followed: is another service there?", answer.Status)
	case status == http.StatusNotFound && !isJSON:
		return Leadership{}, fmt.Errorf("it knows nothing of the lock, or of the path %s (%s)", answer.Request.URL.Path, answer.Status)
	case status != http.StatusOK && status != http.StatusNotFound:
		return Leadership{}, fmt.Errorf("it answers %s: %.200q", answer.Status, answer.body)
	case !isJSON:
		return Leadership{}, fmt.Errorf("the answer is %q and not JSON: is another service there?", kind)
	}
	said, err := decode(answer.body)
	if err != nil {
		return Leadership{}, fmt.Errorf("the answer is not a leader's: %w: is another service there?", err)
	}
	if said.Leading != (answer.StatusCode == http.StatusOK) {
		return Leadership{}, fmt.Errorf("the answer contradicts its status %s: is a proxy in between?", answer.Status)
	}
	return said, nil
}

func errToken(answer answered) error {
	return fmt.Errorf("it refuses the bearer token (%s): set the same Token on both sides", answer.Status)
}

// explain adds the next step to an error of a connection.
func explain(ctx context.Context, err error) error {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		op          *net.OpError
		slow        net.Error
	)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &certificate):
		return fmt.Errorf("its certificate is not accepted: %w: check RootCAs, and the names in the certificate", err)
	case errors.As(err, &record):
		return fmt.Errorf("it does not speak TLS: %w", err)
	case errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("it refuses this side's TLS: %w: if it asks for a certificate, set one that its ClientCAs signed", err)
	case errors.As(err, &slow) && slow.Timeout():
		return fmt.Errorf("it is silent: %w", err)
	}
	return err
}
