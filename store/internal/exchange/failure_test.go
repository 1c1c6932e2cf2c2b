package exchange_test

import (
	"testing"

	"github.com/leasehold/leasehold/store/internal/exchange"
)

// TestRedact: what a proxy repeats of a request has no secret in it, and what has none stays as it is.
func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		`GET https://u:p@acct.blob.core.windows.net/c/k?sv=1&sig=abc%3D: EOF`: `GET https://acct.blob.core.windows.net/c/k?…: EOF`,
		`The URL /c/k?sv=1&amp;sig=abc%3D was not found`:                      `The URL /c/k?… was not found`,
		`"http://h/k?X-Amz-Signature=abc"`:                                    `"http://h/k?…"`,
		`sv=1&sig=abc%2Bd&se=2`:                                               `sv=1&sig=…&se=2`,
		`AccountName=a;AccountKey=a2V5;x`:                                     `AccountName=a;AccountKey=…`,
		`Authorization: Bearer ya29.abcdefghijkl`:                             `Authorization: Bearer …`,
		`Authorization: SharedKey acct:c2VjcmV0c2VjcmV0`:                      `Authorization: SharedKey …`,
		`is this an S3 server? Set region=eu-west-1, or AWS_REGION`:           `is this an S3 server? Set region=eu-west-1, or AWS_REGION`,
		`dial tcp 127.0.0.1:9000: connection refused`:                         `dial tcp 127.0.0.1:9000: connection refused`,
		`the region 'us-east-1' is wrong; expecting 'eu-west-1'`:              `the region 'us-east-1' is wrong; expecting 'eu-west-1'`,
		`basic auth is not allowed`:                                           `basic auth is not allowed`,
	} {
		if got := exchange.Redact(text); got != want {
			t.Errorf("%q becomes\n%q, want\n%q", text, got, want)
		}
	}
}
