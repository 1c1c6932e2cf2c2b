package storeurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/smithy-go/logging"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/awsidentity"
)

// loadAWS returns a function that reads the present AWS configuration.
func loadAWS(query url.Values) func(context.Context) (aws.Config, error) {
	client := awshttp.NewBuildableClient().WithTimeout(fetchWithin).WithTransportOptions(onlyWhereAsked)
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client),
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = client }),
		// The SDK would write to stderr. What matters is in errors.
		config.WithLogger(logging.Nop{}),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = 250 * time.Millisecond })
		}),
		// For credentials of containers, the SDK shortens the validity by five minutes.
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = 0 }),
	}
	if region := query.Get("region"); region != "" {
		options = append(options, config.WithRegion(region))
	}
	if profile := query.Get("profile"); profile != "" {
		options = append(options, config.WithSharedConfigProfile(profile))
	}
	return func(ctx context.Context) (aws.Config, error) {
		cfg, err := config.LoadDefaultConfig(ctx, options...)
		cfg.Retryer = nil // only the credential providers need it
		return cfg, err
	}
}

// onlyWhereAsked blocks redirects. The SDK's clients follow them without a limit, for example
// from a credentials service that redirects to itself. They accept only this type of transport,
// whose Proxy also sees redirected requests.
func onlyWhereAsked(tr *http.Transport) {
	proxy := tr.Proxy
	tr.Proxy = func(req *http.Request) (*url.URL, error) {
		if req.Response != nil {
			return nil, errors.New("redirected, which is not followed")
		}
		return proxy(req)
	}
}

// onAWS adds what to do about a configuration that cannot be read.
func onAWS(err error) error {
	if _, ok := errors.AsType[config.SharedConfigProfileNotExistError](err); ok {
		return fmt.Errorf("%w: check profile=… in the URL and AWS_PROFILE; profiles are in %s", err, strings.Join(awsFiles(), " and "))
	}
	bundle := os.Getenv("AWS_CA_BUNDLE")
	if failed, ok := errors.AsType[*fs.PathError](err); bundle != "" && (ok && failed.Path == bundle || strings.Contains(err.Error(), "CA bundle")) {
		return fmt.Errorf("AWS_CA_BUNDLE=%s: %w: it must be a file of certificates in PEM form", bundle, err)
	}
	return err
}

// awsFiles returns the files that the SDK reads.
func awsFiles() []string {
	return []string{
		cmp.Or(os.Getenv("AWS_CONFIG_FILE"), config.DefaultSharedConfigFilename()),
		cmp.Or(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), config.DefaultSharedCredentialsFilename()),
	}
}

const (
	// awsEarly is how long before their expiry credentials are replaced: from then on, AWS
	// services return new ones.
	awsEarly = 5 * time.Minute

	// roleLasts is the maximum validity of credentials from EC2's metadata service. The SDK
	// reports one hour, to be asked for new ones.
	roleLasts = 6 * time.Hour
	roleTold  = time.Hour
)

// keepAWS returns a provider for the configuration's credentials. It replaces the SDK's cache,
// which drops credentials of containers five minutes before they expire, gives up if the
// service cannot be reached, waits forever for one that hangs, and reads files only once.
func keepAWS(load func(context.Context) (aws.Config, error)) aws.CredentialsProvider {
	files := &awsStamps{}
	files.changed() // since now
	had := false    // used only by the flight in progress
	k := &kept[aws.Credentials]{changed: files.changed}
	k.fetch = func(ctx context.Context) (creds aws.Credentials, v validity, err error) {
		now := time.Now()
		if creds, err = fetchAWS(ctx, load); err != nil {
			return creds, v, noAWS(err, had)
		}
		if had = true; !creds.CanExpire {
			return creds, v, nil
		}
		v = validity{renew: creds.Expires.Add(-awsEarly), ends: creds.Expires}
		if creds.Source == ec2rolecreds.ProviderName && creds.Expires.Sub(now) >= roleTold {
			v.ends = now.Add(roleLasts)
		}
		return creds, v, nil
	}
	return awsKept{k}
}

// awsKept has the methods of an [aws.CredentialsCache].
type awsKept struct{ k *kept[aws.Credentials] }

func (a awsKept) Retrieve(ctx context.Context) (aws.Credentials, error) { return a.k.get(ctx) }

// Invalidate is called by s3store when the store refuses the credentials.
func (a awsKept) Invalidate() { a.k.refuse() }

func fetchAWS(ctx context.Context, load func(context.Context) (aws.Config, error)) (aws.Credentials, error) {
	cfg, err := load(ctx)
	if err != nil {
		return aws.Credentials{}, err
	}
	creds, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return creds, err
	}
	for _, secret := range []string{creds.AccessKeyID, creds.SecretAccessKey, creds.SessionToken} {
		if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return creds, &tokenError{store.ErrDenied, fmt.Sprintf("the AWS credentials of %s have a space, an end of a line or another character in them that none has: set them again without it", creds.Source), nil}
		}
	}
	return creds, nil
}

// noAWS returns the store's error for missing credentials. If the reason may be temporary or a
// wrong setting, it counts as the latter until there were credentials.
func noAWS(err error, had bool) error {
	if e, ok := errors.AsType[*tokenError](err); ok {
		return e
	}
	v := awsidentity.Judge(err)
	e := &tokenError{kind: v.Kind, text: v.Advice + " (" + oneLine(err.Error()) + ")"}
	switch {
	case e.kind == nil && had:
		e.kind = store.ErrUnavailable
	case e.kind == nil:
		e.kind = store.ErrDenied
	}
	return e
}

// awsStamps detects changes of the SDK's files.
type awsStamps [2]os.FileInfo

func (s *awsStamps) changed() bool {
	changed := false
	for i, file := range awsFiles() {
		was := s[i]
		s[i], _ = os.Stat(file) // nil: the file does not exist
		if (was == nil) != (s[i] == nil) || was != nil && (!os.SameFile(was, s[i]) || was.Size() != s[i].Size() || !was.ModTime().Equal(s[i].ModTime())) {
			changed = true
		}
	}
	return changed
}
