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

// fetchAgain is the least time between two requests for other credentials than those that the server refuses.
const fetchAgain = 5 * time.Second

// credentials are those of the client. A server may refuse them before the end that was told of them: their session was
// revoked, or the key replaced. A provider that keeps them, as an [aws.CredentialsCache] does, would give them until then.
type credentials struct {
	aws.CredentialsProvider

	mu       sync.Mutex
	given    aws.Credentials // the last ones
	accepted bool            // the server has let a request in
	next     time.Time       // the provider drops none before
}

// renewing is the client with credentials that are fetched again when the server refuses them.
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

// accept notes that an answer came to a request that was let in.
func (c *credentials) accept(status int) {
	if c == nil || status >= 300 && status != http.StatusNotModified && status != http.StatusPreconditionFailed {
		return
	}
	c.mu.Lock()
	c.accepted = true
	c.mu.Unlock()
}

// refuse has the provider fetch credentials again. It reports that there may be others: not of a key that a person has
// set, nor where the server never took any, unless it says itself that these have expired.
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
