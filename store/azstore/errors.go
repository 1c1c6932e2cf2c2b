package azstore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
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

// fail returns the call's error.
func (c *call) fail(ctx context.Context, err error) *store.Error {
	v, text := c.classify(err), plain(err)
	if c.refusal != nil {
		text = c.refusal.Words(c.Status())
		if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
			err = nil // the response came first, but the SDK reports the context's end
		}
	}
	return c.Fail(ctx, v, text, err, c.throttled(), c.requestID())
}

// throttled reports whether the service asks for fewer requests: with 429, or with the 503 of
// https://learn.microsoft.com/azure/storage/blobs/scalability-targets
func (c *call) throttled() bool {
	return c.Status() == http.StatusTooManyRequests || c.code() == string(bloberror.ServerBusy)
}

// classify judges the error. The code only refines the status.
func (c *call) classify(err error) exchange.Verdict {
	if _, ok := errors.AsType[*tokenError](err); ok && !c.Handed() && !passes(err) {
		return exchange.Verdict{Kind: store.ErrDenied, Advice: "no token to be had for Azure, nothing was sent to the store; check the credentials"}
	}
	if c.Handed() && c.Unsent() {
		return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "no connection to the server, nothing was sent; check the endpoint, the name of the account and the network"}
	}
	if v, ok := c.Judge(err, c.throttled()); ok {
		return v
	}
	return c.turnedAway(c.Status(), c.code())
}

// passes reports whether the lack of a token may be temporary: the credentials say so, the
// context has ended, or the token service could not be reached or could not answer.
func passes(err error) bool {
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrDenied) {
		return !errors.Is(err, store.ErrDenied)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return !exchange.ChangesNothing(answer.StatusCode) || answer.StatusCode == http.StatusTooManyRequests
	}
	// net.Error is too broad: an errno, of a missing file for example, is one too.
	_, connection := errors.AsType[*net.OpError](err)
	_, asked := errors.AsType[*url.Error](err)
	return connection || asked
}

// turnedAway judges a response that changed nothing. The codes are those of
// https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
func (c *call) turnedAway(status int, code string) exchange.Verdict {
	if v := judge(code); v.Kind != nil {
		return v
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return exchange.Verdict{Kind: store.ErrDenied, Advice: c.onDenied(code)}
	case http.StatusNotFound:
		return c.notFound(code)
	case http.StatusConflict:
		return exchange.Verdict{Kind: c.conflict(code)}
	}
	return c.Otherwise(c.onRefused())
}

// judge returns the verdict on a code that means the same with every status, or none. Many of
// these codes come with 409 or 412, which usually mean that a retry may land, or that the
// condition does not hold. These writes never land, whatever the condition.
func judge(code string) exchange.Verdict {
	switch bloberror.Code(code) {
	case bloberror.MD5Mismatch, bloberror.CRC64Mismatch:
		return exchange.Verdict{Kind: store.ErrUnavailable} // the body did not arrive intact
	case bloberror.InvalidResourceName, bloberror.InvalidURI, bloberror.OutOfRangeInput, bloberror.RequestURLFailedToParse, bloberror.ResourceTypeMismatch:
		return exchange.Verdict{Kind: store.ErrInvalid}
	case bloberror.ServerBusy:
		return exchange.Verdict{Kind: store.ErrThrottled}
	case bloberror.ContainerBeingDeleted:
		return exchange.Verdict{Kind: store.ErrNoBucket, Advice: "the container is being deleted; its name is free again after half a minute or more"}
	case bloberror.ContainerDisabled, bloberror.AccountIsDisabled:
		return exchange.Verdict{Kind: store.ErrDenied, Advice: "an administrator has disabled it"}
	case "PublicAccessNotPermitted":
		return exchange.Verdict{Kind: store.ErrDenied, Advice: "the request had no credentials, and the account lets nobody in without; give the store a token, a key or a SAS"}
	case bloberror.BlobImmutableDueToPolicy, "BlobImmutableDueToLegalHold":
		return exchange.Verdict{Kind: store.ErrRefused, Advice: "a policy of immutability or a legal hold keeps this blob as it is: locks need a container without"}
	case bloberror.InvalidBlobType:
		return exchange.Verdict{Kind: store.ErrRefused, Advice: "the blob of this name is no block blob, so no store has written it: use another key or prefix, or delete it"}
	case bloberror.SnapshotsPresent:
		return exchange.Verdict{Kind: store.ErrRefused, Advice: "the blob has snapshots, which somebody made: delete them first"}
	case bloberror.BlobArchived:
		return exchange.Verdict{Kind: store.ErrRefused, Advice: "the blob was moved to the archive tier: exclude the locks from the rule that does so"}
	case bloberror.BlobUsesCustomerSpecifiedEncryption, "BlobOperationNotSupported":
		return exchange.Verdict{Kind: store.ErrRefused}
	case bloberror.InvalidBlockList:
		return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "blocks of this upload are gone: did somebody else write the same key, or did it take more than a week?"}
	}
	// LeaseIdMissing comes with 412 and means one of Azure's own leases on the blob, which only
	// its holder may overwrite. https://learn.microsoft.com/rest/api/storageservices/lease-blob
	if strings.HasPrefix(code, "Lease") {
		return exchange.Verdict{Kind: store.ErrRefused, Advice: "somebody holds a lease of Azure's own on this blob: break it, and keep such leases off the keys of locks"}
	}
	return exchange.Verdict{}
}

// onDenied returns what to do about 401 and 403.
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

// notFound judges a 404. A blob is absent only if Azure says so. Web servers and proxies
// without a backend use 404 as well. A store that treated these as an absent object would find
// every lock free.
func (c *call) notFound(code string) exchange.Verdict {
	switch {
	case code == string(bloberror.ContainerNotFound):
		return exchange.Verdict{Kind: store.ErrNoBucket, Advice: "make the container, or check its name and the account"}
	case code == string(bloberror.BlobNotFound) && c.Op != "list" && !c.create:
		return exchange.Verdict{Kind: store.ErrNotExist}
	case code == string(bloberror.ResourceNotFound):
		return exchange.Verdict{Kind: store.ErrRefused, Advice: "Azure also says so of a private container to requests without credentials: check the credentials and the name of the container"}
	case code != "":
		return exchange.Verdict{Kind: store.ErrRefused, Advice: "this is about neither an object nor a container: check the credentials and the endpoint"}
	}
	// This may be temporary: a proxy responds like this while its backend starts.
	return exchange.Verdict{Kind: store.ErrUnavailable, Advice: "this is not how Azure says that an object does not exist: does the endpoint lead to Azure Blob Storage?"}
}

// conflict judges a 409. A create over an existing blob gets it, while others use 412:
// https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations
func (c *call) conflict(code string) error {
	if c.Writes() {
		switch code {
		case string(bloberror.BlobAlreadyExists), string(bloberror.ResourceAlreadyExists):
			return store.ErrPrecondition
		case "", string(bloberror.PendingCopyOperation):
			return store.ErrConflict
		}
	}
	return store.ErrUnavailable
}

// onRefused returns what to do about a request the server considers malformed.
func (c *call) onRefused() string {
	if strings.EqualFold(c.refusal.header, "x-ms-version") {
		return "the server does not know this version of the service: start Azurite with --skipApiVersionCheck"
	}
	return ""
}
