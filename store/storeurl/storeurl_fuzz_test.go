package storeurl_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// FuzzSplitLock: whatever a URL is, it is refused as one, without a word of what may be a
// secret; or it is divided into a store's URL and a key that a store can keep, which put
// together again are divided the same.
func FuzzSplitLock(f *testing.F) {
	for _, seed := range []string{
		"s3://bucket/jobs/backup", "s3://bucket/a%2Fb?region=eu-central-1&endpoint=http://127.0.0.1:9000&path_style=true",
		"s3://bucket/k?profile=p&profile=q", "s3://bucket", "s3:///k", "s3://b:1/k", "s3://b/../k", "s3://b//k", "s3://b/k/", "s3://b/%00",
		"file:///dir/key", "file:///key", "file://localhost/dir/key", "file://host/dir/key", "file:dir/key", "file:///a/%2e%2e/b", "file:////a//b",
		"mem://name/key", "mem://name/a/b", "mem:///key", "gs://bucket/key", "gs://bucket/a/b?anonymous=true", "azblob://container/key?account=acct", "azblob://c/k", "abfss://c@acct.dfs.core.windows.net/k", "http://x/y", "key", "", "s3://b/k#x", "s3://b/k?", "S3://b/k",
		"file:///%25/a%3Fb", "s3://b/é", "s3://b/%ff", "s3://%41/k",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		storeURL, key, err := storeurl.SplitLock(raw)
		if err != nil {
			if !errors.Is(err, storeurl.ErrURL) || storeURL+key != "" {
				t.Errorf("%q: %q, %q, %v", raw, storeURL, key, err)
			}
			return
		}
		if err = store.CheckKey("lock", key); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
		if scheme, path, _ := strings.Cut(storeURL, "://"); scheme == "file" && strings.Contains(path, "..") && slices.Contains(strings.Split(path, "/"), "..") {
			t.Errorf("%q climbs to %q", raw, storeURL)
		}
		u, err := url.Parse(storeURL)
		if err != nil {
			t.Fatalf("%q has the store %q: %v", raw, storeURL, err)
		}
		u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+"/"+key, ""
		if s, k, err := storeurl.SplitLock(u.String()); err != nil || s != storeURL || k != key {
			t.Errorf("%q is %q and %q; together, %q, they are %q and %q, %v", raw, storeURL, key, u, s, k, err)
		}
	})
}

// FuzzSecrets: what somebody writes into a URL as a password or a parameter is not in the
// error.
func FuzzSecrets(f *testing.F) {
	const secret = "hunter2"
	f.Add("s3", "bucket", "key", "region")
	f.Add("s3", "buck et", "", "secret_key")
	f.Add("file", "", "dir/key", "x")
	f.Add("mem", "a:b", "%zz", "endpoint")
	f.Add("gs", "\x7f", "key", "")
	f.Add("gs", "bucket", "key", "endpoint")
	f.Add("azblob", "container", "key", "account")
	f.Add("https", "acct.blob.core.windows.net", "container/key", "sig")
	f.Fuzz(func(t *testing.T, scheme, host, path, parameter string) {
		if strings.Contains(scheme+host+path+parameter, secret) {
			t.Skip()
		}
		for _, raw := range []string{
			scheme + "://user:" + secret + "@" + host + "/" + path,
			scheme + "://" + host + "/" + path + "?" + parameter + "=" + secret,
		} {
			if _, _, err := storeurl.SplitLock(raw); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: %v", raw, err)
			}
		}
	})
}
