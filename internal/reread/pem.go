package reread

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// KeyPair parses a certificate, with the chain that follows it, and its key. Unlike [tls.X509KeyPair] it fails if a part of
// the chain is incomplete or cannot be parsed.
func KeyPair(cert, key []byte) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	if _, err = certificates(cert); err != nil {
		return tls.Certificate{}, err
	}
	return pair, nil
}

// CAs parses the certificates of authorities. It fails if there is none, or if one is incomplete or cannot be parsed.
func CAs(text []byte) (*x509.CertPool, error) {
	certs, err := certificates(text)
	if err != nil {
		return nil, err
	}
	if len(certs) == 0 {
		return nil, errors.New("there is no certificate in it: it must have those of the authorities, in PEM")
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool, nil
}

// certificates fails where the parsers of the standard library skip what they cannot use, because a file that is still
// being written would be taken for a whole one.
func certificates(text []byte) ([]*x509.Certificate, error) {
	begun, complete := bytes.Count(append([]byte("\n"), text...), []byte("\n-----BEGIN ")), 0
	var certs []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		complete++
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d in it cannot be parsed: %w", len(certs)+1, err)
		}
		certs = append(certs, c)
	}
	if complete < begun {
		return nil, fmt.Errorf("%d of %d PEM blocks in it are complete: write the whole file, best under another name, and rename it", complete, begun)
	}
	return certs, nil
}
