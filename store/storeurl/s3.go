package storeurl

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

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
	opts := &s3store.Options{Prefix: prefixOf(u), Encryption: query.Get("encryption"), KMSKey: query.Get("kms_key")}
	for name, to := range map[string]*bool{
		"unquoted_etags": &opts.UnquotedETags, "content_md5": &opts.ContentMD5, "requester_pays": &opts.RequesterPays,
	} {
		set, failed := boolean(u, query, name)
		if failed != nil {
			return nil, failed
		}
		*to = set != nil && *set
	}
	load := loadAWS(query)
	cfg, err := load(ctx)
	if err != nil {
		return nil, fmt.Errorf("open s3://%s: read the AWS configuration: %w", u.Host, onAWS(err))
	}
	cfg.Credentials = keepAWS(load)
	// By the time this function is called, AWS_ENDPOINT_URL_S3 has been applied.
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
		o.UsePathStyle = o.BaseEndpoint != nil
		if pathStyle != nil {
			o.UsePathStyle = *pathStyle
		}
		if o.Region == "" && o.BaseEndpoint != nil {
			o.Region = "us-east-1" // what other servers than AWS expect
		}
		o.HTTPClient = closable(o.HTTPClient)
	})
	if err = checkAWS(u, client.Options(), endpoint != "", pathStyle != nil && *pathStyle); err != nil {
		return nil, err
	}
	_, opts.OwnClient = client.Options().HTTPClient.(*http.Client)
	st, err := s3store.New(client, u.Host, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return st, nil
}

// checkAWS returns an error for settings with which no request is possible, or none to the
// intended bucket. They come from the URL, the environment or the configuration files.
func checkAWS(u *url.URL, o s3.Options, byURL, pathStyle bool) error {
	switch {
	case o.Region == "":
		return fmt.Errorf("open s3://%s: no region: add region=… to the URL, or set AWS_REGION", u.Host)
	case strings.ContainsFunc(o.Region, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' }):
		return fmt.Errorf("open s3://%s: %q cannot be a region: correct region=… in the URL, AWS_REGION or the AWS configuration", u.Host, o.Region)
	case o.BaseEndpoint == nil:
		return nil
	}
	endpoint, why := parseEndpoint(*o.BaseEndpoint)
	if why == "" {
		why = splits(u, endpoint, pathStyle)
	}
	switch {
	case why == "":
		return nil
	case byURL:
		return bad(u, why)
	}
	return fmt.Errorf("open s3://%s: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's endpoint_url: %s", u.Host, why)
}

// closable returns the SDK's client with a transport that can be closed, because its own is not
// accessible. All settings of the SDK and the environment are kept, except redirects, which the
// SDK would follow without a limit.
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
	own.Transport, own.Timeout = sdk.GetTransport(), 0 // the timeout is for credentials
	own.CheckRedirect = exchange.NoRedirects
	return &own
}
