// Package authority is a certmagic.Issuer for tests, which needs no network.
package authority

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
)

// An Authority signs whatever it is asked to.
type Authority struct {
	// Before is called with each request, and may refuse it. Default: none.
	Before func(ctx context.Context) error

	name   string
	issued atomic.Int32
}

var _ certmagic.Issuer = (*Authority)(nil)

// New makes one of that name. Authorities of one name are one to certmagic.
func New(name string) *Authority { return &Authority{name: name} }

// IssuerKey is the name.
func (a *Authority) IssuerKey() string { return a.name }

// Issued is how many certificates it has issued.
func (a *Authority) Issued() int { return int(a.issued.Load()) }

// Issue signs a certificate.
func (a *Authority) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if a.Before != nil {
		if err := a.Before(ctx); err != nil {
			return nil, err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(int64(a.issued.Add(1))),
		Subject:      pkix.Name{CommonName: a.name},
		DNSNames:     request.DNSNames,
		NotBefore:    time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), // virtual time begins in 2000
		NotAfter:     time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, request.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}
