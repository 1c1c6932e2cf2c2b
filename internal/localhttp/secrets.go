package localhttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// mostSecret bounds the file of a certificate, a key or authorities, in bytes.
const mostSecret = 1 << 20

// RereadEvery is how often [Secrets.Follow] reads the files.
const RereadEvery = 10 * time.Second

// Files are where the token of a server, its certificate with the key, and the authorities of its clients are; an empty
// name is none. Their errors begin with the flag that names such a file.
type Files struct {
	Token     string // --http-token-file
	Cert, Key string // --tls-cert, --tls-key
	ClientCA  string // --tls-client-ca
}

// Secrets are what is in [Files]. A server that has its Token and its TLS goes by what was read last.
type Secrets struct {
	Token Token
	TLS   *tls.Config // nil: there is to be none

	files Files
	mu    sync.Mutex
	texts [][]byte // that count
	tls   atomic.Pointer[tls.Config]
}

// Open reads the files. It fails if one cannot be read or used, and if others than its owner and group may read or write
// the token or the key.
func (f Files) Open() (*Secrets, error) {
	s := &Secrets{files: f}
	if (f.Cert == "") != (f.Key == "") || f.ClientCA != "" && f.Cert == "" {
		return nil, errors.New("TLS needs both --tls-cert and --tls-key")
	}
	if f.Token != "" {
		s.Token.sum = new(atomic.Pointer[tokenSum])
	}
	if _, err := s.Reload(); err != nil {
		return nil, err
	}
	if f.Cert != "" {
		s.TLS = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.tls.Load(), nil },
		}
		if f.ClientCA != "" {
			s.TLS.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	return s, nil
}

// Reload reads the files anew, and reports whether anything has changed. If something is wrong with one, all stays as it
// was.
func (s *Secrets) Reload() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files
	texts := make([][]byte, 4)
	for i, file := range []struct {
		flag, name string
		secret     bool
	}{{"--http-token-file", f.Token, true}, {"--tls-cert", f.Cert, false}, {"--tls-key", f.Key, true}, {"--tls-client-ca", f.ClientCA, false}} {
		if file.name == "" {
			continue
		}
		if texts[i], err = readFile(file.name, file.secret, mostSecret); err != nil {
			return false, fmt.Errorf("%s: %w", file.flag, err)
		}
	}
	if s.texts != nil && bytes.Equal(bytes.Join(texts, []byte{0}), bytes.Join(s.texts, []byte{0})) {
		return false, nil
	}
	var sum tokenSum
	if f.Token != "" {
		if sum, err = sumOf(f.Token, texts[0]); err != nil {
			return false, fmt.Errorf("--http-token-file: %w", err)
		}
	}
	config, err := f.config(texts[1], texts[2], texts[3])
	if err != nil {
		return false, err
	}
	if f.Token != "" {
		s.Token.sum.Store(&sum)
	}
	s.tls.Store(config)
	s.texts = texts
	return true, nil
}

// config is that for the next connection.
func (f Files) config(cert, key, authorities []byte) (*tls.Config, error) {
	if f.Cert == "" {
		return nil, nil //nolint:nilnil // there is to be no TLS
	}
	certificate, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.Cert, f.Key, err)
	}
	// A connection that goes on by a ticket would show no certificate again, not even one that is not trusted any more.
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
	if f.ClientCA != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("--tls-client-ca %s has no certificate", f.ClientCA)
		}
	}
	return config, nil
}

// Follow reads the files anew each [RereadEvery], and whenever something comes from now, until ctx ends. It tells of each
// change (nil), and once of each reason why a file cannot be used: of one that came by itself when that has lasted until
// the next reading, since a certificate and its key are not replaced at one moment.
func (s *Secrets) Follow(ctx context.Context, now <-chan os.Signal, tell func(error)) {
	tick := time.NewTicker(RereadEvery)
	defer tick.Stop()
	var before, told string
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			asked = true
		case <-tick.C:
		}
		changed, err := s.Reload()
		switch {
		case err == nil:
			before, told = "", ""
			if changed || asked {
				tell(nil)
			}
		case asked, err.Error() == before && err.Error() != told:
			told = err.Error()
			tell(err)
		}
		if err != nil {
			before = err.Error()
		}
	}
}

// ReadSecret reads a file that others than its owner and group may neither read nor write.
func ReadSecret(name string) ([]byte, error) { return readFile(name, true, mostSecret) }

func readFile(name string, secret bool, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// A mode on Windows says nothing about others.
	if others := info.Mode().Perm() & 0o006; secret && others != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s is open to all users of this machine (mode %04o): chmod o= %[1]s", name, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return text, err
}
