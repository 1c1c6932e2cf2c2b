package azstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/exchange"
)

var (
	errNoETag      = errors.New("the answer has no ETag: is this Azure Blob Storage?")
	errNotModified = errors.New("304 Not Modified")
)

// fail makes the error of the call.
func (c *call) fail(ctx context.Context, err error) *store.Error {
	v := c.classify(err)
	if c.Unsure() && c.writes() {
		v.kind = store.ErrUnknownOutcome
	}
	text, ended := plain(err), ctx.Err()
	if c.refusal != nil {
		text = c.words()
		if ended != nil && errors.Is(err, ended) {
			err = nil // the answer came first, but the SDK says what came last
		}
	}
	if v.advice != "" {
		text += "; " + v.advice
	}
	var cause error = &exchange.Failure{Text: text, Err: err}
	if c.writes() && c.Status() >= 500 && c.throttled() {
		cause = fmt.Errorf("%w: %w", store.ErrThrottled, cause)
	}
	// The SDK and net/http may say what became of the connection, or why the
	// context was cancelled, instead of that it has ended.
	if ended != nil && !c.refused() && !errors.Is(err, ended) {
		cause = fmt.Errorf("%w: %w", ended, cause)
	}
	return &store.Error{Op: c.op, Key: c.key, Kind: v.kind, Cause: cause, Date: c.Date(), RequestID: c.requestID()}
}

func (c *call) writes() bool { return c.op == "put" && !c.part || c.op == "delete" }

// refused reports whether the service answered anything but success.
func (c *call) refused() bool { return c.Status() >= 300 }

// throttled reports that the service asks for fewer requests: with 429, or with the 503 of
// https://learn.microsoft.com/azure/storage/blobs/scalability-targets
func (c *call) throttled() bool {
	return c.Status() == http.StatusTooManyRequests || c.code() == string(bloberror.ServerBusy)
}

// A verdict is the kind of an error and, if there is something to say, what its
// reader might do about it.
type verdict struct {
	kind   error
	advice string
}

// classify judges the error. The status decides wherever there is one; the code refines it.
func (c *call) classify(err error) verdict {
	status := c.Status()
	switch {
	case status == 0:
		return c.unanswered(err)
	case errors.Is(err, store.ErrTooLarge):
		return verdict{kind: store.ErrTooLarge}
	case errors.Is(err, store.ErrSentAgain):
		return verdict{kind: store.ErrNotModified}
	case status == http.StatusNotModified && c.op == "get":
		return verdict{kind: store.ErrNotModified}
	case status == http.StatusNotImplemented:
		return verdict{store.ErrRefused, "the server does not know this request, so it cannot carry locks"}
	case !exchange.ChangesNothing(status):
		if !c.writes() && c.throttled() {
			return verdict{kind: store.ErrThrottled}
		}
		return verdict{kind: c.unsettled()}
	}
	return c.turnedAway(status, c.code())
}

// unanswered is for a call without an answer.
func (c *call) unanswered(err error) verdict {
	switch {
	case !c.Handed():
		if _, ok := errors.AsType[*tokenError](err); ok && !passes(err) {
			return verdict{store.ErrDenied, "no token to be had for Azure, nothing was sent to the store; check the credentials"}
		}
		return verdict{kind: store.ErrUnavailable}
	case c.Unsent():
		return verdict{store.ErrUnavailable, "no connection to the server, nothing was sent; check the endpoint, the name of the account and the network"}
	}
	return verdict{kind: c.unsettled()}
}

// passes reports that a token may be had the next time: the context has ended, or the service
// for tokens could not be reached or could not answer.
func passes(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return !exchange.ChangesNothing(answer.StatusCode) || answer.StatusCode == http.StatusTooManyRequests
	}
	_, unreached := errors.AsType[net.Error](err)
	return unreached
}

// unsettled is the kind of a call that may have been carried out.
func (c *call) unsettled() error {
	if c.writes() {
		return store.ErrUnknownOutcome
	}
	return store.ErrUnavailable
}

// turnedAway is for an answer that changes nothing. The codes are those of
// https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
func (c *call) turnedAway(status int, code string) verdict {
	if v := judge(code); v.kind != nil {
		return v
	}
	switch status {
	case http.StatusTooManyRequests:
		return verdict{kind: store.ErrThrottled}
	case http.StatusUnauthorized, http.StatusForbidden:
		return verdict{store.ErrDenied, c.onDenied(code)}
	case http.StatusNotFound:
		return c.notFound(code)
	case http.StatusConflict:
		return verdict{kind: c.conflict(code)}
	case http.StatusRequestEntityTooLarge:
		return verdict{store.ErrRefused, "a lock has a few hundred bytes: does a proxy before the server allow less?"}
	case http.StatusPreconditionFailed:
		if c.writes() {
			return verdict{kind: store.ErrPrecondition}
		}
		return verdict{kind: store.ErrUnavailable}
	case http.StatusTemporaryRedirect, http.StatusLocked,
		http.StatusFailedDependency, http.StatusTooEarly, http.StatusMisdirectedRequest:
		return verdict{kind: store.ErrUnavailable} // the next time it may be another
	}
	return verdict{store.ErrRefused, c.onRefused()}
}

// judge gives the verdict on a code that means the same under every status, or none. Many of
// them come as 409 or 412, which say of a write that another try may land, and that the
// condition does not hold: of these writes no other try lands, whatever the condition is.
func judge(code string) verdict {
	switch bloberror.Code(code) {
	case bloberror.MD5Mismatch, bloberror.CRC64Mismatch:
		return verdict{kind: store.ErrUnavailable} // the body did not arrive as it was sent
	case bloberror.InvalidResourceName, bloberror.InvalidURI, bloberror.OutOfRangeInput, bloberror.RequestURLFailedToParse, bloberror.ResourceTypeMismatch:
		return verdict{kind: store.ErrInvalid}
	case bloberror.ServerBusy:
		return verdict{kind: store.ErrThrottled}
	case bloberror.ContainerBeingDeleted:
		return verdict{store.ErrNoBucket, "the container is being deleted; its name is free again after half a minute or more"}
	case bloberror.ContainerDisabled, bloberror.AccountIsDisabled:
		return verdict{store.ErrDenied, "an administrator has disabled it"}
	case "PublicAccessNotPermitted":
		return verdict{store.ErrDenied, "the request had no credentials, and the account lets nobody in without; give the store a token, a key or a SAS"}
	case bloberror.BlobImmutableDueToPolicy, "BlobImmutableDueToLegalHold":
		return verdict{store.ErrRefused, "a policy of immutability or a legal hold keeps this blob as it is: locks need a container without"}
	case bloberror.InvalidBlobType:
		return verdict{store.ErrRefused, "the blob of this name is no block blob, so no store has written it: use another key or prefix, or delete it"}
	case bloberror.SnapshotsPresent:
		return verdict{store.ErrRefused, "the blob has snapshots, which somebody made: delete them first"}
	case bloberror.BlobArchived:
		return verdict{store.ErrRefused, "the blob was moved to the archive tier: exclude the locks from the rule that does so"}
	case bloberror.BlobUsesCustomerSpecifiedEncryption, "BlobOperationNotSupported":
		return verdict{kind: store.ErrRefused}
	case bloberror.InvalidBlockList:
		return verdict{store.ErrUnavailable, "blocks of this upload are gone: did somebody else write the same key, or did it take more than a week?"}
	}
	// LeaseIdMissing comes with 412: a lease of Azure's own on the blob, which only its holder
	// may overwrite. https://learn.microsoft.com/rest/api/storageservices/lease-blob
	if strings.HasPrefix(code, "Lease") {
		return verdict{store.ErrRefused, "somebody holds a lease of Azure's own on this blob: break it, and keep such leases off the keys of locks"}
	}
	return verdict{}
}

// onDenied says what to do about 401 and 403.
func (c *call) onDenied(code string) string {
	switch bloberror.Code(code) {
	case bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo:
		return c.onAuthentication()
	case bloberror.AuthorizationPermissionMismatch, bloberror.UnauthorizedBlobOverwrite:
		return "give the identity the role Storage Blob Data Contributor on the container, or the SAS the permissions to read, create, write, delete and list (sp=rcwdl)"
	case bloberror.AuthorizationFailure:
		return "check the permissions, and the firewall of the account: it answers so to networks that it does not know"
	case bloberror.NoAuthenticationInformation:
		return "the request had no credentials: give the store a token, a key or a SAS"
	case "KeyBasedAuthenticationNotPermitted":
		return "the account takes no keys: use an identity of Microsoft Entra"
	case bloberror.AuthorizationResourceTypeMismatch, bloberror.AuthorizationServiceMismatch:
		return "the SAS is for something else: make one for the container"
	}
	return ""
}

func (c *call) onAuthentication() string {
	switch detail := strings.Join(strings.Fields(c.refusal.detail), " "); {
	case strings.Contains(detail, "Signature not valid in the specified time frame"):
		return "the SAS has expired or is not valid yet: " + detail
	case strings.Contains(detail, "Request date header too old"):
		return "set this machine's clock: it is too far from the server's"
	case strings.Contains(detail, "Lifetime validation failed"):
		return "the token has expired: is this machine's clock right?"
	}
	return "check the credentials, and that they are those of this account"
}

// notFound: a blob is absent only by Azure's word for it. A web server, and a proxy that has
// lost the server behind it, say 404 as well, and a store that took those for an absent object
// would find every lock free.
func (c *call) notFound(code string) verdict {
	switch {
	case code == string(bloberror.ContainerNotFound):
		return verdict{store.ErrNoBucket, "make the container, or check its name and the account"}
	case code == string(bloberror.BlobNotFound) && c.op != "list" && !c.create:
		return verdict{kind: store.ErrNotExist}
	case code == string(bloberror.ResourceNotFound):
		return verdict{store.ErrRefused, "Azure also says so of a private container to requests without credentials: check the credentials and the name of the container"}
	case code != "":
		return verdict{store.ErrRefused, "this is about neither an object nor a container: check the credentials and the endpoint"}
	}
	// It may pass: a proxy says so while the server behind it starts.
	return verdict{store.ErrUnavailable, "this is not how Azure says that an object does not exist: does the endpoint lead to Azure Blob Storage?"}
}

// conflict is for 409, which a create over a blob gets, where others answer 412:
// https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations
func (c *call) conflict(code string) error {
	if c.writes() {
		switch code {
		case string(bloberror.BlobAlreadyExists), string(bloberror.ResourceAlreadyExists):
			return store.ErrPrecondition
		case "", string(bloberror.PendingCopyOperation):
			return store.ErrConflict
		}
	}
	return store.ErrUnavailable
}

// onRefused says what to do about a request that is taken to be malformed.
func (c *call) onRefused() string {
	if strings.EqualFold(c.refusal.header, "x-ms-version") {
		return "the server does not know this version of the service: start Azurite with --skipApiVersionCheck"
	}
	if to := c.Header().Get("Location"); to != "" {
		return fmt.Sprintf("it leads to %q: is that the endpoint to use?", exchange.Readable(to))
	}
	return ""
}
