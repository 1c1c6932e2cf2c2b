package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates for tests. They are also valid in the year in which virtual
// time begins.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority. No client trusts it yet.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{}
	var der []byte
	der, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority of a test"},
		IsCA:    true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert = cert
	return a
}

func (a *Authority) sign(t testing.TB, c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Unix(0, 0), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// Issue returns a certificate for servers with these names or addresses, and for clients.
func (a *Authority) Issue(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	c := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "candidate of a test"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	der, key := a.sign(t, c)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// PEM returns the authority's own certificate.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// Write issues a certificate, and writes it, its key and the authority's certificate to dir as
// me.pem, me.key and ca.pem.
func (a *Authority) Write(t testing.TB, dir string, names ...string) {
	t.Helper()
	cert := a.Issue(t, names...)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"me.pem": encode("CERTIFICATE", cert.Certificate[0]), "me.key": encode("PRIVATE KEY", key), "ca.pem": a.PEM(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
