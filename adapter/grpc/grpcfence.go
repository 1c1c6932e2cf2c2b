// Package grpcfence is package fence for gRPC: the interceptors of a server that
// refuses the calls of a former leader, and of a client that sends its token along. It
// is a module of its own, so that gRPC is not among the library's dependencies.
//
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpcfence.UnaryServer(gate, nil)),
//		grpc.ChainStreamInterceptor(grpcfence.StreamServer(gate, nil)),
//	)
//	grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(grpcfence.UnaryClient(lease)),
//		grpc.WithChainStreamInterceptor(grpcfence.StreamClient(lease)),
//	)
//
// The token travels in the metadata under [Key]. A call is refused with these statuses,
// each with an ErrorInfo of the domain [Domain] among its details:
//
//	FAILED_PRECONDITION  FENCED          stale; the ErrorInfo has token, newest and resource
//	INVALID_ARGUMENT     TOKEN_REQUIRED  there is none
//	INVALID_ARGUMENT     NOT_A_TOKEN     there is something else, or more than one
//	UNAVAILABLE          NOT_CHECKED     the Checker failed; the call was not begun
//
// If the context of the call ends at the gate, the status is its own.
package grpcfence

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
)

const (
	// Key has a call's token in its metadata.
	Key = "leasehold-token"
	// Domain is that of the ErrorInfo in a refusal.
	Domain = "leasehold"
)

// The reasons in the ErrorInfo of a refusal.
const (
	fenced        = "FENCED"
	tokenRequired = "TOKEN_REQUIRED"
	notAToken     = "NOT_A_TOKEN"
	notChecked    = "NOT_CHECKED"
)

// refusal makes the error by which a server refuses a call.
func refusal(code codes.Code, message, reason string, metadata map[string]string) error {
	plain := status.New(code, message)
	s, err := plain.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: metadata})
	if err != nil { // a message that is not UTF-8
		return plain.Err()
	}
	return s.Err()
}

// fencedStatus makes a fence's refusal an answer.
func fencedStatus(f *fence.FencedError) error {
	return refusal(codes.FailedPrecondition, f.Error(), fenced, map[string]string{
		"resource": f.Resource, "token": f.Token.String(), "newest": f.Newest.String(),
	})
}

// A fencedError is the status of a call that a fence has refused.
type fencedError struct {
	*fence.FencedError
	status *status.Status
}

func (e *fencedError) Unwrap() error              { return e.FencedError }
func (e *fencedError) GRPCStatus() *status.Status { return e.status }

// heard returns err, the answer to a call on behalf of h. If a fence has refused the
// call, it ends the lease, and the error is both its status and a [*fence.FencedError].
func heard(h fence.Holder, err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.FailedPrecondition {
		return err
	}
	for _, detail := range s.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.Reason != fenced || info.Domain != Domain {
			continue
		}
		newest, bad := strconv.ParseInt(info.Metadata["newest"], 10, 64)
		if bad != nil || leasehold.Token(newest) < h.Token() {
			continue // it cannot be this token that was refused
		}
		refused := fence.Refuse(h, info.Metadata["resource"], leasehold.Token(newest))
		if f, ok := errors.AsType[*fence.FencedError](refused); ok {
			return &fencedError{f, s}
		}
	}
	return err
}

// holder is on whose behalf a call is made: h, or the one that its context carries.
func holder(ctx context.Context, h fence.Holder) (fence.Holder, error) {
	if h == nil {
		h = fence.HolderFrom(ctx)
	}
	return h, fence.Admit(h)
}
