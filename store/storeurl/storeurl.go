// Package storeurl opens the store of a URL. It is the one package that knows all stores.
//
//	s3://BUCKET/PREFIX?region=…&endpoint=…&path_style=true|false&profile=…&unquoted_etags=true|false
//	    &if_match=true|false&content_md5=true|false&encryption=…&kms_key=…&requester_pays=true|false
//	gs://BUCKET/PREFIX?endpoint=…&user_project=…&anonymous=true|false&if_match=true|false
//	azblob://CONTAINER/PREFIX?account=…&endpoint=…&if_match=true|false
//	file:///DIR?if_match=true|false
//	mem://NAME
//	quorum:///PREFIX?member=URL&member=URL&member=URL
//	quorum://NAME/PREFIX
//
// A lock's URL also contains the lock's key. Open's prefix or directory is not part of it:
//
//	s3://BUCKET/KEY     the whole path is the key, in the store s3://BUCKET,
//	                    and the same for gs:// and azblob://
//	file:///DIR/KEY     the last segment is the key, in the store file:///DIR
//	mem://NAME/KEY
//	quorum:///KEY?member=…, quorum://NAME/KEY
//
// Paths are percent-encoded, as in any URL. URLs never contain secrets.
//
// # S3
//
// Settings that are not in the URL come from the sources of the AWS SDK: the environment, the
// shared configuration files, the role of the machine. If any of these sets an endpoint,
// requests have the bucket in the path unless path_style=false, and the region is us-east-1
// unless one is configured. An endpoint that also names the bucket is an error, because objects
// would have other keys than for processes that name it once.
//
// For buckets that require it, content_md5 sends a checksum with each write, encryption
// (AES256, aws:kms, aws:kms:dsse) and kms_key request server-side encryption, and
// requester_pays makes you pay for the requests.
//
// Credentials are replaced some minutes before they expire, and files are read again when they
// change. Errors match [store.ErrDenied] if the credentials are refused (400, 401, 403, 404),
// if a login has expired, or if there is no source of credentials. After any other failure to
// get credentials, they match [store.ErrUnavailable]. If the store refuses credentials before
// they expire, they are fetched again.
//
// # Google Cloud Storage
//
// The credentials are the Application Default Credentials: the file in
// GOOGLE_APPLICATION_CREDENTIALS, or the one written by "gcloud auth application-default
// login", or those of the metadata server. A file is read when the store is opened, and again
// for each token. The metadata server is looked up when the first token is needed; if there is
// none, that takes two seconds, once per process. Tokens are replaced some minutes before they
// expire, or when the store refuses them. Errors match [store.ErrDenied] if the credentials are
// refused (400, 401, 403, 404) or cannot be used, and [store.ErrUnavailable] after any other
// failure to get a token.
//
// The endpoint is a scheme and a host, of a private endpoint or an emulator. No credentials are
// sent to an http endpoint, to the one in STORAGE_EMULATOR_HOST unless anonymous=false, or with
// anonymous=true. user_project is the project that pays for the requests.
//
// # Azure Blob Storage
//
// The account comes from the URL or from AZURE_STORAGE_ACCOUNT. The endpoint is that of the
// account, for other clouds than the public one and for emulators:
// http://127.0.0.1:10000/devstoreaccount1. The credentials are the first of these, in the order
// of the Azure CLI: AZURE_STORAGE_CONNECTION_STRING, which also has an account;
// AZURE_STORAGE_KEY; AZURE_STORAGE_SAS_TOKEN; and an identity found by package azidentity: from
// the environment, a workload identity, a managed identity, or the user's login with az, azd or
// PowerShell. AZURE_STORAGE_AUTH_MODE=login uses only the identity. It is an error if the
// credentials are for one account and the URL names another.
//
// Errors match [store.ErrDenied] if a token service refuses, and [store.ErrUnavailable] if it
// cannot be reached. If no credentials are found, this distinction is not always possible, for
// example on a virtual machine whose metadata service cannot be reached, or from the output of
// az. Before the first token such an error matches ErrDenied, and afterwards ErrUnavailable.
//
// # A quorum
//
// The members are three or five URLs of other stores, escaped as parameters: see package
// quorumstore. Because such a URL is long, you can use a name instead. It is looked up in the
// file in LEASEHOLD_QUORUM_FILE. Each line has the name of a quorum and its members' URLs,
// separated by spaces; lines that begin with # are comments.
//
// # All
//
// Some servers ignore If-Match, or do not have it. if_match=false says so: locks with epochs and
// markers then do without, as with leasehold.LockOptions.NoIfMatch, and everything that needs
// If-Match is refused, such as other locks, sessions and semaphores. All programs that share a
// lock must agree on it. The store's name is the same.
//
// A store in memory exists once per name, until the process exits.
//
// A directory is created with its first object; opening and reading create nothing.
// [OpenExisting] never creates it: use that for a directory on a file system that may not be
// mounted, as the command leasehold does without --mkdir. A store that keeps connections is an
// io.Closer: those of s3://, gs:// and azblob:// URLs, which have their own clients. If your
// program opens many stores, or must leave nothing behind, close each store after its last use;
// otherwise you need not:
//
//	if c, ok := st.(io.Closer); ok {
//		err = c.Close()
//	}
//
// Connections to credentials services do not belong to the store, and close after 90 s without
// use.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
)

// ErrURL is matched by every error in the URL itself. Correct the URL.
var ErrURL = errors.New("bad store URL")

// Open opens the store of a store URL. It reads configuration files, and sends nothing to the
// store. The context is only for loading the configuration.
func Open(ctx context.Context, rawurl string) (store.Store, error) {
	return open(ctx, rawurl, &Options{})
}

// OpenExisting is [Open] for a directory that must exist. If it does not, OpenExisting fails
// with [store.ErrNoBucket], and so does every later call if it is deleted; it is never created.
// Buckets are never created, and their existence is checked only by calls.
//
// A directory that is a quorum member may appear later: until then that member fails, and the
// quorum works with the others.
func OpenExisting(ctx context.Context, rawurl string) (store.Store, error) {
	return open(ctx, rawurl, &Options{MustExist: true})
}

// Options are the options of [OpenWith]. The zero value means those of [Open].
type Options struct {
	// MustExist requires that the directory exists, as with [OpenExisting].
	MustExist bool

	// Private hides what is created in a directory from users who may not write the directory:
	// see [filestore.Options]. It has no effect on other stores.
	Private bool

	// Logger gets a message when a quorum member begins to fail, and when it answers again: see
	// [quorumstore.Options]. Default: none.
	Logger *slog.Logger
}

// OpenWith is [Open] with options. A nil opts means the defaults.
func OpenWith(ctx context.Context, rawurl string, opts *Options) (store.Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	return open(ctx, rawurl, opts)
}

func open(ctx context.Context, rawurl string, opts *Options) (store.Store, error) {
	u, query, err := parse(rawurl)
	if err != nil {
		return nil, err
	}
	ifMatch, err := boolean(u, query, "if_match")
	if err != nil {
		return nil, err
	}
	st, err := openAt(ctx, u, query, opts)
	if err == nil && ifMatch != nil && !*ifMatch {
		st = withoutIfMatch(st)
	}
	return st, err
}

func openAt(ctx context.Context, u *url.URL, query url.Values, opts *Options) (store.Store, error) {
	switch u.Scheme {
	case "s3":
		return openS3(ctx, u, query)
	case "gs":
		return openGS(ctx, u, query)
	case "azblob":
		return openAzblob(u, query)
	case "quorum":
		return openQuorum(ctx, u, query, opts)
	case "file":
		dir, err := localPath(u)
		if err != nil {
			return nil, err
		}
		st, err := filestore.New(dir, &filestore.Options{MustExist: opts.MustExist, Private: opts.Private})
		if err != nil {
			return nil, err // not a Store that holds a nil
		}
		return st, nil
	default:
		return openMem(u)
	}
}

// OpenLock opens the store of a lock URL and returns it with the lock's key.
func OpenLock(ctx context.Context, rawurl string) (st store.Store, key string, err error) {
	storeURL, key, err := SplitLock(rawurl)
	if err != nil {
		return nil, "", err
	}
	st, err = Open(ctx, storeURL)
	return st, key, err
}

// SplitLock splits a lock URL into the URL of its store and its key. It does not access the
// store.
func SplitLock(rawurl string) (storeURL, key string, err error) {
	u, _, err := parse(rawurl)
	if err != nil {
		return "", "", err
	}
	dir, key := "", strings.TrimPrefix(u.Path, "/")
	if u.Scheme == "file" {
		dir, key = path.Split(u.Path)
		dir = path.Clean(dir)
	}
	switch {
	case key == "" || strings.HasSuffix(key, "/"):
		return "", "", bad(u, "a lock needs a key: the path must not end with a slash")
	default:
		if err := store.CheckKey("lock", key); err != nil {
			return "", "", fmt.Errorf("%w: %w", bad(u, "the key cannot be used"), err)
		}
	}
	if u.Scheme == "quorum" && u.Host == "" {
		dir = "/"
	}
	of := *u
	of.Path, of.RawPath = dir, ""
	return of.String(), key, nil
}

// parameters are the schemes and their parameters.
var parameters = map[string][]string{
	"s3":     {"region", "endpoint", "path_style", "profile", "unquoted_etags", "if_match", "content_md5", "encryption", "kms_key", "requester_pays"},
	"gs":     {"endpoint", "user_project", "anonymous", "if_match"},
	"azblob": {"account", "endpoint", "if_match"},
	"file":   {"if_match"},
	"mem":    nil,
	"quorum": {"member"},
}

// parse checks what the URLs of all schemes have in common.
func parse(rawurl string) (*url.URL, url.Values, error) {
	u, err := url.Parse(rawurl)
	if err != nil {
		// Without the URL in the error of url.Parse, because it may contain a password.
		if cited, ok := errors.AsType[*url.Error](err); ok {
			err = cited.Err
		}
		return nil, nil, fmt.Errorf("%w: %w (a %% in a path is written %%25)", ErrURL, err)
	}
	if err = checkForeign(u); err != nil {
		return nil, nil, err
	}
	if u.User != nil {
		return nil, nil, fmt.Errorf("%w: it has a user or a password in it; credentials come from the environment or a profile, never from a URL", ErrURL)
	}
	if err = checkScheme(u.Scheme); err != nil {
		return nil, nil, err
	}
	switch {
	case u.Opaque != "":
		return nil, nil, fmt.Errorf("%w: no slashes follow %s: at its beginning: write %s:// and an absolute path", ErrURL, u.Scheme, u.Scheme)
	case u.Fragment != "" || strings.HasSuffix(rawurl, "#"):
		return nil, nil, bad(u, "it has a fragment (a # in a path is written %23)")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, bad(u, "its parameters cannot be read: "+err.Error())
	}
	if err = checkPlace(u); err != nil {
		return nil, nil, err
	}
	return u, query, checkQuery(u, query)
}

func checkPlace(u *url.URL) error {
	switch u.Scheme {
	case "file":
		return checkFile(u)
	case "s3", "gs":
		return checkBucket(u)
	case "azblob":
		return checkContainer(u)
	case "quorum":
		return checkQuorum(u)
	}
	if u.Host == "" {
		return bad(u, "a store in memory has a name: write mem://NAME")
	}
	return nil
}

func checkFile(u *url.URL) error {
	switch {
	case u.Host != "" && u.Host != "localhost":
		return bad(u, "a file URL names no host: three slashes begin an absolute path, file:///DIR")
	case climbs(u.Path):
		return bad(u, "the path has a segment \"..\": write where it leads to")
	}
	return nil
}

func checkBucket(u *url.URL) error {
	switch {
	case u.Host == "":
		return bad(u, "there is no bucket: write "+u.Scheme+"://BUCKET")
	case strings.Contains(u.Host, ":"):
		return bad(u, "a bucket has no port; the server's address is the parameter endpoint")
	}
	return nil
}

func checkContainer(u *url.URL) error {
	switch {
	case u.Host == "":
		return bad(u, "there is no container: write azblob://CONTAINER")
	case strings.HasSuffix(u.Hostname(), ".windows.net"):
		return bad(u, "that is an account, and the container comes first: write "+azblobForm)
	case len(u.Host) > 63 || !containerName().MatchString(u.Host):
		return bad(u, "a container's name has 3 to 63 small letters, digits and single hyphens between them")
	}
	return nil
}

// climbs reports whether a path has a segment "..". Its meaning depends on symbolic links
// before it, so two URLs of one directory could differ, and one URL could be of two.
func climbs(path string) bool {
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == ".." {
			return true
		}
	}
	return false
}

const (
	gsForm     = "gs://BUCKET/KEY"
	azblobForm = "azblob://CONTAINER/KEY?account=ACCOUNT"
)

// otherForms are the schemes that other tools use for the same stores.
var otherForms = map[string]string{
	"s3a": "s3://BUCKET/KEY", "s3n": "s3://BUCKET/KEY",
	"gcs": gsForm, "google": gsForm,
	"az": azblobForm, "azure": azblobForm, "abfs": azblobForm, "abfss": azblobForm, "wasb": azblobForm, "wasbs": azblobForm,
}

// checkForeign says how to write the URLs of other tools here. It does not show the URL,
// because some tools have a container where others have a password.
func checkForeign(u *url.URL) error {
	form := otherForms[u.Scheme]
	if u.Scheme == "http" || u.Scheme == "https" {
		form = cloudForm(u.Hostname())
	}
	if form == "" {
		return nil
	}
	return fmt.Errorf("%w: it begins with %s://: write %s", ErrURL, u.Scheme, form)
}

// cloudForm returns the form of a bucket's URL for a cloud's host, or "".
func cloudForm(host string) string {
	host = "." + strings.ToLower(host)
	for suffix, form := range map[string]string{
		".storage.googleapis.com":   gsForm,
		".storage.cloud.google.com": gsForm,
		".core.windows.net":         azblobForm,
		".storage.azure.net":        azblobForm,
		".amazonaws.com":            "s3://BUCKET/KEY?region=REGION",
	} {
		if strings.HasSuffix(host, suffix) {
			return form
		}
	}
	return ""
}

// clouds are the clouds that each scheme may be used with. Google also supports S3's protocol.
var clouds = map[string][]string{"s3": {"s3", "gs"}, "gs": {"gs"}, "azblob": {"azblob"}}

// checkCloud returns an error for an endpoint of another cloud.
func checkCloud(u *url.URL, endpoint *url.URL) error {
	form := cloudForm(endpoint.Hostname())
	cloud, _, _ := strings.Cut(form, "://")
	if form == "" || slices.Contains(clouds[u.Scheme], cloud) {
		return nil
	}
	return bad(u, "the endpoint is of another cloud: write "+form)
}

func checkScheme(scheme string) error {
	known := strings.Join(slices.Sorted(maps.Keys(parameters)), "://, ") + "://"
	_, ok := parameters[scheme]
	switch {
	case ok:
		return nil
	case scheme == "":
		return fmt.Errorf("%w: it has no scheme; it must begin with one of %s", ErrURL, known)
	}
	return fmt.Errorf("%w: unknown scheme %s://; this version knows %s", ErrURL, scheme, known)
}

func checkQuery(u *url.URL, query url.Values) error {
	known := parameters[u.Scheme]
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case len(known) == 0:
			return bad(u, fmt.Sprintf("unknown parameter %q; %s URLs have none", name, u.Scheme))
		case !slices.Contains(known, name):
			return bad(u, fmt.Sprintf("unknown parameter %q; there are %s", name, strings.Join(known, ", ")))
		case len(query[name]) > 1 && name != "member":
			return bad(u, fmt.Sprintf("the parameter %q is there %d times", name, len(query[name])))
		case query.Get(name) == "":
			return bad(u, fmt.Sprintf("the parameter %q is empty", name))
		}
	}
	return nil
}

// bad returns an error about the URL. It omits the parameters, which may contain a secret by
// mistake.
func bad(u *url.URL, why string) error {
	where := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, OmitHost: u.OmitHost}
	return fmt.Errorf("%w: %s: %s", ErrURL, where.String(), why)
}

var (
	memMu sync.Mutex
	mem   = map[string]*memstore.Store{}
)

func openMem(u *url.URL) (store.Store, error) {
	if strings.Trim(u.Path, "/") != "" {
		return nil, bad(u, "a store in memory has no path: write mem://NAME")
	}
	memMu.Lock()
	defer memMu.Unlock()
	st, ok := mem[u.Host]
	if !ok {
		st = memstore.New()
		mem[u.Host] = st
	}
	return st, nil
}
