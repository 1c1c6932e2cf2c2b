package leasecertmagic_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/leasehold/leasehold"
	leasecertmagic "github.com/leasehold/leasehold/adapter/certmagic"
	"github.com/leasehold/leasehold/adapter/certmagic/internal/authority"
	"github.com/leasehold/leasehold/internal/adaptertest"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// magic is certmagic with that storage.
func magic(t *testing.T, s certmagic.Storage, issuer certmagic.Issuer) *certmagic.Config {
	t.Helper()
	var cfg *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return cfg, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	cfg = certmagic.New(cache, certmagic.Config{Storage: s, Issuers: []certmagic.Issuer{issuer}, Logger: zap.NewNop()})
	return cfg
}

// wantPair checks that the certificate and the key in the storage belong together.
func wantPair(t *testing.T, s *leasecertmagic.Storage, domain string) {
	t.Helper()
	cert, err := s.Load(t.Context(), certmagic.StorageKeys.SiteCert("ca", domain))
	must(t, err)
	key, err := s.Load(t.Context(), certmagic.StorageKeys.SitePrivateKey("ca", domain))
	must(t, err)
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		t.Error(err)
	}
}

// TestObtain: of several instances of certmagic that want a certificate one obtains it, and all have it.
func TestObtain(t *testing.T) {
	adaptertest.Everywhere(t, func(t *testing.T, p adaptertest.Place) {
		ca := authority.New("ca")
		var wg sync.WaitGroup
		for range 3 {
			cfg := magic(t, newStorage(t, p.Open(t), nil), ca)
			wg.Go(func() {
				for _, domain := range []string{"example.com", "*.example.com"} {
					if err := cfg.ObtainCertSync(t.Context(), domain); err != nil {
						t.Error(err)
					}
					if _, err := cfg.CacheManagedCertificate(t.Context(), domain); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n := ca.Issued(); n != 2 {
			t.Errorf("%d certificates were issued, want 2", n)
		}
		s := newStorage(t, p.Open(t), nil)
		wantPair(t, s, "example.com")
		wantPair(t, s, "*.example.com")
	})
}

const issueLock = "issue_cert_example.com"

// TestLostWhileObtaining: who has lost the lock stores nothing of its certificate, and deletes nothing of the other's; its
// next attempt finds that.
func TestLostWhileObtaining(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		a, b, cut := two(t, nil)
		ca, calls := authority.New("ca"), 0
		ca.Before = func(ctx context.Context) error {
			calls++
			if calls == 1 {
				lose(t, a, issueLock, cut)
				return magic(t, b, authority.New("ca")).ObtainCertSync(context.WithoutCancel(ctx), "example.com")
			}
			return nil
		}
		key := certmagic.StorageKeys.SitePrivateKey("ca", "example.com")
		if err := magic(t, a, ca).ObtainCertAsync(t.Context(), "example.com"); err != nil {
			t.Error(err)
		}
		if calls != 1 || ca.Issued() != 1 {
			t.Errorf("it was asked for %d certificates, want 1", calls)
		}
		wantPair(t, b, "example.com")
		before, err := b.Load(t.Context(), key)
		must(t, err)

		// The same while another obtains it: the attempts fail until the other is done.
		must(t, a.Delete(t.Context(), "certificates"))
		calls = 0
		ca.Before = func(ctx context.Context) error {
			if calls++; calls == 1 {
				lose(t, a, issueLock, cut)
				must(t, b.Lock(ctx, issueLock))
				later := context.WithoutCancel(ctx)
				time.AfterFunc(90*time.Second, func() {
					if err := errors.Join(b.Store(later, key, before), b.Unlock(later, issueLock)); err != nil {
						t.Error(err)
					}
				})
			}
			return nil
		}
		begin := time.Now()
		if err := magic(t, a, ca).ObtainCertAsync(t.Context(), "example.com"); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); calls != 2 || took < 90*time.Second || took > 10*time.Minute {
			t.Errorf("it was asked for %d certificates, want 2, after %v", calls, took)
		}
		wantPair(t, b, "example.com")
	})
}

// TestWritesUnderALostLock: what is of the certificate is refused, anything else is not.
func TestWritesUnderALostLock(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		ctx := t.Context()
		a, b, cut := two(t, nil)
		key := certmagic.StorageKeys.SiteCert("ca", "example.com")
		must(t, a.Lock(ctx, issueLock))
		must(t, a.Store(ctx, key, []byte("a")))
		lose(t, a, issueLock, cut)
		for _, err := range []error{a.Store(ctx, key, []byte("b")), a.Delete(ctx, key)} {
			if !errors.Is(err, leasehold.ErrLost) {
				t.Error(err)
			}
		}
		must(t, a.Store(ctx, certmagic.StorageKeys.SiteCert("ca", "www.example.com"), nil))
		must(t, a.Store(ctx, "acme/example.com/x", nil))
		if got, err := b.Load(ctx, key); err != nil || string(got) != "a" {
			t.Errorf("%q, %v", got, err)
		}
		must(t, a.RenewLockLease(ctx, issueLock, time.Hour))
		must(t, a.Delete(ctx, key))
		if _, err := b.Load(ctx, key); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		must(t, a.Unlock(ctx, issueLock))
		must(t, a.Store(ctx, key, nil))
	})
}

// TestClean: certmagic looks through the storage, and finds nothing to clean in it.
func TestClean(t *testing.T) {
	ctx, ca := t.Context(), authority.New("ca")
	a, _, _ := two(t, nil)
	cfg := magic(t, a, ca)
	must(t, cfg.ObtainCertSync(ctx, "example.com"))
	must(t, certmagic.CleanStorage(ctx, a, certmagic.CleanStorageOptions{ExpiredCerts: true, OCSPStaples: true, Logger: zap.NewNop()}))
	wantPair(t, a, "example.com")
}
