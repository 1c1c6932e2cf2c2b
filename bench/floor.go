package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// body is as large as a record.
var body = bytes.Repeat([]byte("x"), 330)

// The floors: what any lock on S3 is made of.
const (
	rawGet     = "GET, bare SDK"
	rawPut     = "PUT, bare SDK"
	rawIfMatch = "PUT If-Match, bare SDK"
	rawTwo     = "2 × PUT If-Match, bare SDK"
	plainGet   = "GET, plain HTTP"
	plainPut   = "PUT If-Match, plain HTTP"
)

// A floorer sends single requests to one key.
type floorer struct {
	ctx    context.Context
	p      *place
	client *s3.Client
	key    string
	etag   *string
	n      uint64
	signer *v4.Signer
	http   *http.Client
}

func openFloor(ctx context.Context, p *place, key string) (*floorer, error) {
	f := &floorer{ctx: ctx, p: p, client: p.client(), key: key, signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }), http: &http.Client{Transport: &http.Transport{}}}
	return f, f.put()
}

// next is a body like the last one, and not the same, as records are.
func (f *floorer) next() []byte {
	f.n++
	b := bytes.Clone(body)
	copy(b, fmt.Sprintf("%020d", f.n))
	return b
}

func (f *floorer) put() error {
	out, err := f.client.PutObject(f.ctx, &s3.PutObjectInput{Bucket: &f.p.bucket, Key: &f.key, Body: bytes.NewReader(f.next())})
	if err == nil {
		f.etag = out.ETag
	}
	return err
}

func (f *floorer) ifMatch() error {
	out, err := f.client.PutObject(f.ctx, &s3.PutObjectInput{Bucket: &f.p.bucket, Key: &f.key, Body: bytes.NewReader(f.next()), IfMatch: f.etag})
	if err == nil {
		f.etag = out.ETag
	}
	return err
}

func (f *floorer) two() error {
	if err := f.ifMatch(); err != nil {
		return err
	}
	return f.ifMatch()
}

func (f *floorer) get() error {
	out, err := f.client.GetObject(f.ctx, &s3.GetObjectInput{Bucket: &f.p.bucket, Key: &f.key})
	if err != nil {
		return err
	}
	defer func() { _ = out.Body.Close() }()
	_, err = io.Copy(io.Discard, out.Body)
	return err
}

func (f *floorer) plain(method string, body []byte) error {
	r, err := http.NewRequestWithContext(f.ctx, method, f.p.endpoint+"/"+f.p.bucket+"/"+f.key, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if method == http.MethodPut {
		r.Header.Set("If-Match", *f.etag)
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	r.Header.Set("X-Amz-Content-Sha256", hash)
	who := aws.Credentials{AccessKeyID: f.p.server.AccessKey, SecretAccessKey: f.p.server.SecretKey}
	if err = f.signer.SignHTTP(f.ctx, who, r, hash, "s3", "us-east-1", time.Now()); err != nil {
		return err
	}
	answer, err := f.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err = io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", method, answer.Status)
	}
	if etag := answer.Header.Get("ETag"); method == http.MethodPut {
		f.etag = &etag
	}
	return nil
}

// floors measures single requests.
func floors(ctx context.Context, b *bench) error {
	type floor struct {
		name string
		f    func() error
	}
	rows := [][]string{{"ms, p50 of a round", rawGet, rawPut, rawIfMatch, plainGet, plainPut}}
	for _, p := range b.places {
		f, err := openFloor(ctx, p, "floor")
		if err != nil {
			return err
		}
		all := []floor{
			{rawGet, f.get},
			{rawPut, f.put},
			{rawIfMatch, f.ifMatch},
			{plainGet, func() error { return f.plain(http.MethodGet, nil) }},
			{plainPut, func() error { return f.plain(http.MethodPut, f.next()) }},
		}
		for round := range b.roundsAt(p) {
			err := turns(all, func(x floor) error {
				t, err := measure(b.operations(p), x.f)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", p.name, x.name, err)
				}
				b.addTiming("floor", p.name, x.name, round, t)
				return nil
			})
			if err != nil {
				return err
			}
		}
		row := []string{p.name}
		for _, x := range all {
			row = append(row, b.ms("floor", p.name, x.name))
		}
		rows = append(rows, row)
	}
	s := b.section("The floor: single requests")
	s.say("What any lock on S3 is made of: requests of %d bytes to one key over a warm connection, one after the other.", len(body))
	s.table(rows)
	return nil
}

// ms is a p50 in milliseconds.
func (b *bench) ms(experiment, place, subject string) string {
	s := b.of(experiment, place, subject, "p50 µs")
	return spread{s.median / 1000, s.least / 1000, s.most / 1000, s.n}.String()
}

// operations is how many of them one round has.
func (b *bench) operations(p *place) int {
	switch {
	case b.short:
		return 3
	case p != nil && p.delayed:
		return 8
	}
	return 500
}

// roundsAt is how many rounds there are.
func (b *bench) roundsAt(p *place) int {
	if p != nil && p.delayed {
		return min(b.rounds, 3)
	}
	return b.rounds
}
