// Package awsidentity judges why the AWS SDK has no credentials: whether the next try may have some, and what to do.
package awsidentity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	"github.com/aws/smithy-go"

	"github.com/leasehold/leasehold/store"
)

const (
	setUp = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role is attached"
	login = "the login has expired, or there was none: run \"aws sso login\" or \"aws login\" for this profile"
)

// Names of services in errors of the SDK.
const (
	imds   = "ec2imds"
	sts    = "STS"
	sso    = "SSO"
	oidc   = "SSO OIDC"
	signin = "Signin"
)

const imdsEndpoint = "AWS_EC2_METADATA_SERVICE_ENDPOINT"

// A Verdict is why there are no credentials. Kind is [store.ErrDenied] if that cannot change until a person changes
// something, [store.ErrUnavailable] if it may pass, and nil if there is no telling: for a program that failed, say.
type Verdict struct {
	Kind   error
	Advice string
}

// Judge judges an error of a provider of credentials.
func Judge(err error) Verdict {
	service := serviceOf(err)
	status := statusOf(err)
	code := codeOf(err)
	_, throttled := retry.DefaultThrottleErrorCodes[code]
	_, expired := errors.AsType[*ssocreds.InvalidTokenError](err)
	_, program := errors.AsType[*processcreds.ProviderError](err)
	_, garbled := errors.AsType[*smithy.DeserializationError](err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), throttled, code == "IDPCommunicationError":
		return passing(service, status)
	case code == "InvalidIdentityToken", code == "ExpiredTokenException":
		return Verdict{nil, "the service for tokens refuses the one in AWS_WEB_IDENTITY_TOKEN_FILE: is that renewed?"}
	case status > 0 && !refuses(status):
		return passing(service, status)
	case status > 0:
		return Verdict{store.ErrDenied, onRefusal(service, status)}
	case expired, strings.Contains(err.Error(), "SSO token"), strings.Contains(err.Error(), "login token"), strings.Contains(err.Error(), "please reauthenticate"):
		return Verdict{store.ErrDenied, login}
	case program:
		return Verdict{nil, "the program in credential_process failed: run it by itself"}
	case service == imds && unreached(err) && !errors.Is(err, syscall.ECONNREFUSED) && os.Getenv(imdsEndpoint) == "":
		// Where the SDK finds nothing else, it asks the metadata service of EC2, on every machine.
		return Verdict{nil, "no AWS credentials are set up, and no metadata service of EC2 answers: " + setUp}
	case garbled, unreached(err):
		return passing(service, status)
	case strings.Contains(err.Error(), "failed to retrieve jwt"), strings.Contains(err.Error(), "failed to read authorization token"):
		return Verdict{nil, "the file with the token for AWS cannot be read: check AWS_WEB_IDENTITY_TOKEN_FILE and AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}
	}
	return Verdict{nil, "no AWS credentials to be had: " + setUp}
}

func passing(service string, status int) Verdict {
	name := cmp.Or(names[service], names[""])
	if status > 0 {
		name = fmt.Sprintf("%s answers %d and", name, status)
	}
	return Verdict{store.ErrUnavailable, name + " gives no AWS credentials for now"}
}

// names are those of the services for people; without an operation's error it is that of containers.
var names = map[string]string{
	imds:   "the metadata service of EC2",
	sts:    "the service for tokens (STS)",
	sso:    "the service for single sign-on",
	oidc:   "the service for single sign-on",
	signin: "the service for logins",
	"":     "the service for credentials",
}

func onRefusal(service string, status int) string {
	switch service {
	case imds:
		if status == http.StatusNotFound {
			return "no role is attached to this machine: attach one, or " + setUp
		}
		return "the metadata service of EC2 refuses: allow it for this machine, or " + setUp
	case sts:
		return "check that this identity may take on the role"
	case sso, oidc, signin:
		return login
	}
	return "the service for credentials refuses: check AWS_CONTAINER_CREDENTIALS_FULL_URI or AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, and its token"
}

// refuses reports that a service which answers so will answer so again.
func refuses(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return false
}

// serviceOf is the innermost: a role is taken on by STS, with credentials of another service.
func serviceOf(err error) (service string) {
	for {
		op, ok := errors.AsType[*smithy.OperationError](err)
		if !ok {
			return service
		}
		service, err = op.ServiceID, op.Err
	}
}

func codeOf(err error) string {
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		return answer.ErrorCode()
	}
	return ""
}

func statusOf(err error) int {
	if answer, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err); ok {
		return answer.HTTPStatusCode()
	}
	return 0
}

// unreached reports that there was no answer. Not every net.Error says so: an errno is one, too.
func unreached(err error) bool {
	_, byURL := errors.AsType[*url.Error](err)
	_, byOp := errors.AsType[*net.OpError](err)
	return byURL || byOp
}
