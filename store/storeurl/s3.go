package storeurl

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
	"github.com/leasehold/leasehold/store/s3store"
)

func openS3(ctx context.Context, u *url.URL, query url.Values) (store.Store, error) {
	endpoint, err := endpointOf(u, query)
	if err != nil {
		return nil, err
	}
	pathStyle, err := boolean(u, query, "path_style")
	if err != nil {
		return nil, err
	}
	unquoted, err := boolean(u, query, "unquoted_etags")
	if err != nil {
		return nil, err
	}
	load := loadAWS(query)
	cfg, err := load(ctx)
	if err != nil {
		return nil, fmt.Errorf("open s3://%s: read the AWS configuration: %w", u.Host, onAWS(err))
	}
	cfg.Credentials = keepAWS(load)
	// What AWS_ENDPOINT_URL_S3 says has been read by the time this is called.
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
		o.UsePathStyle = o.BaseEndpoint != nil
		if pathStyle != nil {
			o.UsePathStyle = *pathStyle
		}
		if o.Region == "" && o.BaseEndpoint != nil {
			o.Region = "us-east-1" // what servers that are not AWS expect
		}
		o.HTTPClient = closable(o.HTTPClient)
	})
	if client.Options().Region == "" {
		return nil, fmt.Errorf("open s3://%s: no region: add region=… to the URL, or set AWS_REGION", u.Host)
	}
	_, own := client.Options().HTTPClient.(*http.Client)
	st, err := s3store.New(client, u.Host, &s3store.Options{
		Prefix: prefixOf(u), UnquotedETags: unquoted != nil && *unquoted, OwnClient: own,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return st, nil
}

// closable is the client of the SDK with a transport that can be closed: its own is out of reach.
// All that the SDK and the environment say of it stays, but for redirects, which it would follow without an end.
func closable(client s3.HTTPClient) s3.HTTPClient {
	sdk, ok := client.(*awshttp.BuildableClient)
	if !ok {
		return client
	}
	frozen, ok := sdk.Freeze().(*http.Client)
	if !ok {
		return client
	}
	own := *frozen
	own.Transport, own.Timeout = sdk.GetTransport(), 0 // that of credentials
	own.CheckRedirect = exchange.NoRedirects
	return &own
}
