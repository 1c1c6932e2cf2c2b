package grpcfence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold/leasehold/fence"
)

// Options are the options of [UnaryServer] and [StreamServer]. The zero value, like
// nil, gives the defaults.
type Options struct {
	// Resource names what a call is about; req is nil for a stream. Two names for one
	// thing are two resources, and fence nothing from each other: methods that change
	// the same thing must have one name. Default: the method, as in
	// "/package.Service/Method".
	Resource func(ctx context.Context, method string, req any) string

	// Optional says of a method that it may be called without a token, and then goes
	// on without being checked, as those that only read may. Default: none.
	Optional func(method string) bool

	// Logger gets what made a Checker fail: a client is not told. Default: slog.Default().
	Logger *slog.Logger
}

// UnaryServer lets a call be served only when the gate admits its token. The handler
// must give up when its context ends; it finds the token by [fence.HolderFrom]. If it
// returns an error, and it or the cause of its context's end is a [*fence.FencedError],
// the call is answered with that: so the client hears of it too when the call is fenced
// while it is served, or when what the handler writes to refuses it.
func UnaryServer(g *fence.Gate, opts *Options) grpc.UnaryServerInterceptor {
	s := newServer(g, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		err = s.serve(ctx, info.FullMethod, req, func(ctx context.Context) (err error) {
			reply, err = handler(ctx, req)
			return err
		})
		return reply, err
	}
}

// StreamServer does for streams what [UnaryServer] does for calls: the whole stream is
// one piece of work.
func StreamServer(g *fence.Gate, opts *Options) grpc.StreamServerInterceptor {
	s := newServer(g, opts)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return s.serve(stream.Context(), info.FullMethod, nil, func(ctx context.Context) error {
			return handler(srv, &serverStream{stream, ctx})
		})
	}
}

type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *serverStream) Context() context.Context { return s.ctx }

type server struct {
	gate *fence.Gate
	opts Options
}

func newServer(g *fence.Gate, opts *Options) *server {
	s := &server{gate: g}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Resource == nil {
		s.opts.Resource = func(_ context.Context, method string, _ any) string { return method }
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.Default()
	}
	return s
}

// serve does the work of a call within the gate.
func (s *server) serve(ctx context.Context, method string, req any, work func(context.Context) error) error {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(Key)
	if len(values) == 0 {
		if s.opts.Optional != nil && s.opts.Optional(method) {
			return work(ctx)
		}
		return refusal(codes.InvalidArgument, "send the token of your lease in the metadata under "+Key, tokenRequired, nil)
	}
	if len(values) > 1 {
		return refusal(codes.InvalidArgument, fmt.Sprintf("there are %d tokens in the metadata under %s", len(values), Key), notAToken, nil)
	}
	token, err := fence.ParseToken(values[0])
	if err != nil {
		return refusal(codes.InvalidArgument, err.Error(), notAToken, nil)
	}
	resource := s.opts.Resource(ctx, method, req)
	inner, leave, err := s.gate.Enter(ctx, resource, token)
	if err != nil {
		return s.keptOut(ctx, resource, token, err)
	}
	defer leave()
	if err = work(inner); err == nil {
		return nil
	}
	for _, cause := range []error{err, context.Cause(inner)} {
		if f, ok := errors.AsType[*fence.FencedError](cause); ok {
			return fencedStatus(f)
		}
	}
	return err
}

// keptOut is the answer to a call that the gate did not let in.
func (s *server) keptOut(ctx context.Context, resource string, token fence.Token, err error) error {
	if f, ok := errors.AsType[*fence.FencedError](err); ok {
		return fencedStatus(f)
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	s.opts.Logger.WarnContext(ctx, "a token could not be checked", "resource", resource, "token", token.Token(), "error", err)
	return refusal(codes.Unavailable, "the token could not be checked, and nothing was done: try again", notChecked, nil)
}
