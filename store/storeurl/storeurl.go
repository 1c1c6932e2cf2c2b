// Package storeurl opens the store that a URL names. It is the one place that
// knows all stores.
//
//	s3://BUCKET/PREFIX?region=…&endpoint=…&path_style=true|false&profile=…&unquoted_etags=true|false
//	    &content_md5=true|false&encryption=…&kms_key=…&requester_pays=true|false
//	gs://BUCKET/PREFIX?endpoint=…&user_project=…&anonymous=true|false
//	azblob://CONTAINER/PREFIX?account=…&endpoint=…
//	file:///DIR
//	mem://NAME
//	quorum:///PREFIX?member=URL&member=URL&member=URL
//	quorum://NAME/PREFIX
//
// The URL of a lock goes on with the lock's key, of which Open's prefix or
// directory is no part:
//
//	s3://BUCKET/KEY     the whole path is the key, in the store s3://BUCKET,
//	                    and so it is with gs:// and azblob://
//	file:///DIR/KEY     the last segment is the key, in the store file:///DIR
//	mem://NAME/KEY
//	quorum:///KEY?member=…, quorum://NAME/KEY
//
// Paths are percent-encoded, as in any URL. Secrets are never a part of one.
//
// # S3
//
// Everything that the URL leaves open comes from the places where the AWS SDK looks:
// the environment, the shared configuration files, the role of the machine. With
// an endpoint, from whichever of these, the bucket stands in the path unless
// path_style=false, and the region is us-east-1 unless one is configured. An endpoint that
// names the bucket, too, is an error: the objects would lie under other keys than those of
// processes that name it once.
//
// content_md5 sends a checksum with each write, encryption (AES256, aws:kms, aws:kms:dsse) and
// kms_key ask for server-side encryption, and requester_pays says who pays: for buckets that
// require them.
//
// Credentials are replaced some minutes before they end, and the files are read again when they
// change. A refusal (400, 401, 403, 404), an expired login, and that there is no source at all
// are [store.ErrDenied]; any other failure to get credentials is [store.ErrUnavailable].
// Credentials that the store refuses before their end are fetched again.
//
// # Google Cloud Storage
//
// The credentials are the Application Default Credentials: the file that
// GOOGLE_APPLICATION_CREDENTIALS names, or the one that "gcloud auth
// application-default login" writes, or those of the metadata server. A file is read
// when the store is opened, and again for each token; the metadata server is sought when
// the first token is needed, which takes two seconds where there is none, and once in a process.
// Tokens are replaced some minutes before they end, or when the store refuses them. A refusal (400, 401, 403, 404) and
// credentials that cannot be used are [store.ErrDenied]; any other failure to get a
// token is [store.ErrUnavailable].
//
// The endpoint is a scheme and a host, of a private endpoint or an emulator. To one of
// http, and to the one that STORAGE_EMULATOR_HOST names, no credentials are sent, and
// with anonymous=true to none. user_project is the project that pays for the requests.
//
// # Azure Blob Storage
//
// The account is that of the URL, or of AZURE_STORAGE_ACCOUNT. The endpoint is that of the
// account, in other clouds than the public one, and of emulators:
// http://127.0.0.1:10000/devstoreaccount1. The credentials are the first of these, as for the
// Azure CLI: AZURE_STORAGE_CONNECTION_STRING, which has an account too, AZURE_STORAGE_KEY,
// AZURE_STORAGE_SAS_TOKEN, and an identity as package azidentity finds it: in the
// environment, that of a workload, a managed one, or the user's of az, azd or PowerShell.
// AZURE_STORAGE_AUTH_MODE=login takes the identity at once. Credentials of one account and
// a URL that names another are an error.
//
// That a service for tokens refuses is [store.ErrDenied], and that it cannot be
// reached is [store.ErrUnavailable]. Where no credentials are found, one cannot be told from
// the other: on a virtual machine whose metadata service is out of reach, say, or from what
// az prints. Until there was a token it is ErrDenied, and then ErrUnavailable.
//
// # A quorum
//
// The members are three or five URLs of other stores, escaped as parameters are: package quorumstore says what
// they make together. Since such a URL is long, it may have a name instead, which is looked up in the file that
// LEASEHOLD_QUORUM_FILE names. A line of it has the name of a quorum and its members' URLs, between spaces; one
// that begins with # is a remark.
//
// # All
//
// A store in memory is one for each name, as long as the process runs.
//
// A directory is made by the first object that is created in it; opening and looking make
// nothing. [OpenExisting] never makes it: use that for a directory on a file system that
// may not be mounted, as the command leasehold does unless it is told --mkdir.
// A store that keeps connections is an io.Closer: that of an s3://, a gs:// or an azblob:// URL,
// which has a client of its own. A program that opens many stores, or must leave nothing behind,
// closes each when nothing uses it any more, and others need not:
//
//	if c, ok := st.(io.Closer); ok {
//		err = c.Close()
//	}
//
// Connections to the services that credentials come from are not the store's, and close after 90 s
// without use.
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

// ErrURL is matched by every error that lies in the URL itself, and so can be
// mended only by writing another.
var ErrURL = errors.New("bad store URL")

// Open opens the store of a store URL. It reads configuration files, and sends
// nothing to the store. The context is for looking up the configuration only.
func Open(ctx context.Context, rawurl string) (store.Store, error) {
	return open(ctx, rawurl, &Options{})
}

// OpenExisting is [Open] for a place that must exist: if the URL's directory does not, it
// fails with [store.ErrNoBucket], and so does every call if it is gone later; nothing makes
// it. A bucket is never made, and asked for only by the calls.
//
// A directory that is a member of a quorum may come later: until then that member fails, and the others go on.
func OpenExisting(ctx context.Context, rawurl string) (store.Store, error) {
	return open(ctx, rawurl, &Options{MustExist: true})
}

// Options are what [OpenWith] can be told. The zero Options are those of [Open].
type Options struct {
	// MustExist is for a place that must exist, as with [OpenExisting].
	MustExist bool

	// Private keeps what is made in a directory from all users who may not write there: see [filestore.Options]. Other
	// stores have no such modes.
	Private bool

	// Logger is told when a member of a quorum begins to fail, and when it answers again: see
	// [quorumstore.Options]. Default: nobody.
	Logger *slog.Logger
}

// OpenWith is [Open] with options; nil are none.
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
			return nil, err // and not a Store that holds a nil
		}
		return st, nil
	default:
		return openMem(u)
	}
}

// OpenLock opens the store of a lock URL and gives the lock's key in it.
func OpenLock(ctx context.Context, rawurl string) (st store.Store, key string, err error) {
	storeURL, key, err := SplitLock(rawurl)
	if err != nil {
		return nil, "", err
	}
	st, err = Open(ctx, storeURL)
	return st, key, err
}

// SplitLock divides a lock URL into the URL of its store and its key. It looks
// at the URL only.
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

// parameters are the schemes and the parameters that each knows.
var parameters = map[string][]string{
	"s3":     {"region", "endpoint", "path_style", "profile", "unquoted_etags", "content_md5", "encryption", "kms_key", "requester_pays"},
	"gs":     {"endpoint", "user_project", "anonymous"},
	"azblob": {"account", "endpoint"},
	"file":   nil,
	"mem":    nil,
	"quorum": {"member"},
}

// parse checks all that URLs of every scheme have in common.
func parse(rawurl string) (*url.URL, url.Values, error) {
	u, err := url.Parse(rawurl)
	if err != nil {
		// Without the URL, which url.Parse cites: there can be a password in it.
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

// climbs reports that a path has a segment "..". Where that leads, a symbolic link before
// it decides, so that two URLs of one directory could differ, and one of two.
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

// otherForms are what URLs of the same places begin with in other tools.
var otherForms = map[string]string{
	"s3a": "s3://BUCKET/KEY", "s3n": "s3://BUCKET/KEY",
	"gcs": gsForm, "google": gsForm,
	"az": azblobForm, "azure": azblobForm, "abfs": azblobForm, "abfss": azblobForm, "wasb": azblobForm, "wasbs": azblobForm,
}

// checkForeign says how the URLs of other tools are written here. It shows nothing of them: in some of them a container
// stands where others have a password.
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

// cloudForm is how the URL of a bucket is written that the host of a cloud has, or "".
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

// clouds are the schemes of the clouds that a server of each scheme may be of. S3's protocol is spoken by Google too.
var clouds = map[string][]string{"s3": {"s3", "gs"}, "gs": {"gs"}, "azblob": {"azblob"}}

// checkCloud reports an endpoint of another cloud.
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

// bad makes an error about the URL. It cites the URL without its parameters:
// what somebody wrote there by mistake may be a secret.
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
