package gocloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/leasehold/leasehold/store"
)

func failed(op, key string, kind, cause error) *store.Error {
	return &store.Error{Op: op, Key: key, Kind: kind, Cause: cause}
}

// fail makes the error of a call of the bucket.
func (s *Store) fail(ctx context.Context, op, key string, err error) *store.Error {
	kind := s.judge(op, err)
	if kind == nil {
		kind = s.missing(ctx, key)
	}
	err = plain{err}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return failed(op, key, kind, err)
}

// plain is an error in one line, without the rules that those of Azure draw.
type plain struct{ err error }

func (p plain) Unwrap() error { return p.err }

func (p plain) Error() string {
	var words []string
	for word := range strings.FieldsSeq(p.err.Error()) {
		if strings.Trim(word, "-") != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// judge gives the kind of an error, or nil if it says that something is missing and not what. A
// refusal must be known by the answer of the server: whatever else becomes of a write leaves it
// open whether it has landed.
func (s *Store) judge(op string, err error) error {
	status, code := s.driver.Answer(err)
	answered := status != 0
	if !answered {
		// Only then does the code of gocloud.dev count. Of answers it says that 403 is NotFound
		// (gcsblob), that 301 is (s3blob), and that 405 and 408 are FailedPrecondition (gcsblob).
		status = statuses[gcerrors.Code(err)]
	}
	writes := op == "put" || op == "delete"
	switch {
	case code == "NoSuchBucket", code == "ContainerNotFound":
		return store.ErrNoBucket
	case (code == "NoSuchKey" || code == "BlobNotFound") && op != "list":
		return store.ErrNotExist
	case code == "BlobAlreadyExists" && writes: // 409
		return store.ErrPrecondition
	case strings.HasPrefix(code, "Lease"): // 409 and 412: somebody holds a lease of Azure's own on the blob
		return store.ErrRefused
	case passes(code) && !writes:
		return store.ErrUnavailable
	case passes(code):
		return store.ErrUnknownOutcome
	}
	switch {
	case status == http.StatusNotFound && (op == "get" || op == "delete"):
		return nil
	case status == http.StatusNotFound && !answered: // by gocloud.dev's word, and neither can miss an object
		return store.ErrNoBucket
	case status == http.StatusNotFound: // of a proxy, say, while the server behind it starts
		return store.ErrUnavailable
	case status == http.StatusPreconditionFailed && op == "put":
		return store.ErrPrecondition
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return store.ErrDenied
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && !writes:
		return store.ErrThrottled
	case status == http.StatusConflict && writes && conflicting(code):
		return store.ErrConflict
	case refuses(status):
		return store.ErrRefused
	case writes:
		return store.ErrUnknownOutcome
	}
	return store.ErrUnavailable
}

// statuses are those that stand for codes of gocloud.dev. For all others there is none.
var statuses = map[gcerrors.ErrorCode]int{
	gcerrors.NotFound:           http.StatusNotFound,
	gcerrors.FailedPrecondition: http.StatusPreconditionFailed,
	gcerrors.PermissionDenied:   http.StatusForbidden,
	gcerrors.ResourceExhausted:  http.StatusTooManyRequests,
}

// missing says what is missing where an error does not tell: an object is absent only if a
// listing says so too.
func (s *Store) missing(ctx context.Context, key string) error {
	found, _, err := s.bucket.ListPage(ctx, blob.FirstPageToken, 1, &blob.ListOptions{Prefix: key})
	switch {
	case err != nil:
		return s.judge("list", err)
	case len(found) > 0 && found[0].Key == key: // it has come meanwhile, or it was a proxy that knew of none
		return store.ErrUnavailable
	}
	return store.ErrNotExist
}

// conflicting reports that a rival write was under way. Azure has 409 for much else, that stays.
func conflicting(code string) bool {
	switch code {
	case "", "Conflict", "ConditionalRequestConflict", "OperationAborted", "PendingCopyOperation":
		return true
	}
	return false
}

// refuses reports that the server has not carried the request out, and will not.
func refuses(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusNotImplemented:
		return true
	case http.StatusRequestTimeout:
		return false
	}
	return status >= 400 && status <= http.StatusRequestHeaderFieldsTooLarge
}

// passes reports that the body has not arrived as it was sent, of which the server says 400.
func passes(code string) bool {
	switch code {
	case "RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "Md5Mismatch":
		return true
	}
	return false
}
