package localhttp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/leasehold/leasehold/internal/reread"
)

// Files are the files of a server's token, certificate, key and client authorities; an empty
// name means none. Their errors begin with the file's flag.
type Files struct {
	Token     string // --http-token-file
	Cert, Key string // --tls-cert, --tls-key
	ClientCA  string // --tls-client-ca
}

// Secrets are the contents of [Files]. A server with this Token and TLS uses what was read
// last.
type Secrets struct {
	*reread.Set

	Token Token
	TLS   *tls.Config // nil: no TLS

	files Files
	tls   atomic.Pointer[tls.Config]
}

// Open reads the files. It fails if one cannot be read or used, or if the token or the key is
// accessible to users other than its owner and group.
func (f Files) Open() (_ *Secrets, err error) {
	s := &Secrets{files: f}
	if (f.Cert == "") != (f.Key == "") || f.ClientCA != "" && f.Cert == "" {
		return nil, errors.New("TLS needs both --tls-cert and --tls-key")
	}
	if f.Token != "" {
		s.Token.sum = new(atomic.Pointer[tokenSum])
	}
	s.Set, err = reread.Open(s.use,
		reread.File{Flag: "--http-token-file", Name: f.Token, Secret: true},
		reread.File{Flag: "--tls-cert", Name: f.Cert},
		reread.File{Flag: "--tls-key", Name: f.Key, Secret: true},
		reread.File{Flag: "--tls-client-ca", Name: f.ClientCA})
	if err != nil {
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

// use applies the current contents of the files.
func (s *Secrets) use(texts [][]byte) error {
	var sum tokenSum
	if s.files.Token != "" {
		var err error
		if sum, err = sumOf(s.files.Token, texts[0]); err != nil {
			return fmt.Errorf("--http-token-file: %w", err)
		}
	}
	config, err := s.files.config(texts[1], texts[2], texts[3])
	if err != nil {
		return err
	}
	if s.files.Token != "" {
		s.Token.sum.Store(&sum)
	}
	s.tls.Store(config)
	return nil
}

// config returns the configuration of new connections.
func (f Files) config(cert, key, authorities []byte) (*tls.Config, error) {
	if f.Cert == "" {
		return nil, nil //nolint:nilnil // there is to be no TLS
	}
	certificate, err := reread.KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.Cert, f.Key, err)
	}
	// A connection resumed by a ticket would not show its certificate again, even one no longer
	// trusted.
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
	if f.ClientCA != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		if config.ClientCAs, err = reread.CAs(authorities); err != nil {
			return nil, fmt.Errorf("--tls-client-ca %s: %w", f.ClientCA, err)
		}
	}
	return config, nil
}
