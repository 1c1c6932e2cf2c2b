package s3store

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// fetchAgain is the minimum interval between requests to replace credentials the server
// refuses.
const fetchAgain = 5 * time.Second

// credentials wraps the client's credentials provider. A server may refuse credentials before
// they expire, because their session was revoked or the key replaced. A caching provider, such
// as an [aws.CredentialsCache], would keep returning them until then.
type credentials struct {
	aws.CredentialsProvider

	mu       sync.Mutex
	given    aws.Credentials // the last ones
	accepted bool            // the server has accepted a request
	next     time.Time       // do not invalidate the provider earlier
}

// renewing returns the client with credentials that are fetched again when the server refuses
// them.
func renewing(client *s3.Client) *s3.Client {
	return s3.New(client.Options(), func(o *s3.Options) {
		if o.Credentials != nil {
			o.Credentials = &credentials{CredentialsProvider: o.Credentials}
		}
	})
}

func (c *credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	creds, err := c.CredentialsProvider.Retrieve(ctx)
	if err == nil {
		c.mu.Lock()
		c.given = creds
		c.mu.Unlock()
	}
	return creds, err
}

// accept records a response that shows that the credentials were accepted.
func (c *credentials) accept(status int) {
	if c == nil || status >= 300 && status != http.StatusNotModified && status != http.StatusPreconditionFailed {
		return
	}
	c.mu.Lock()
	c.accepted = true
	c.mu.Unlock()
}

// refuse makes the provider fetch credentials again, and reports whether there may be new ones.
// There are none for a static key. If the server has never accepted any credentials, there are
// none either, unless it says that these have expired.
func (c *credentials) refuse(expired bool) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !now.Before(c.next) {
		if keeps, ok := c.CredentialsProvider.(interface{ Invalidate() }); ok {
			keeps.Invalidate()
			c.next = now.Add(fetchAgain)
		}
	}
	return (expired || c.accepted) && (c.given.CanExpire || c.given.Source == processcreds.ProviderName)
}
