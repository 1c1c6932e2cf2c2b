package grpcfence_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leasehold/leasehold"
	grpcfence "github.com/leasehold/leasehold/adapter/grpc"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
)

// service is the health service of gRPC, for its generated code, with handlers of ours.
type service struct {
	health.UnimplementedHealthServer
	check func(context.Context, string) error
	watch func(grpc.ServerStreamingServer[health.HealthCheckResponse]) error
}

func (s *service) Check(ctx context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	return &health.HealthCheckResponse{}, s.check(ctx, r.Service)
}

func (s *service) Watch(_ *health.HealthCheckRequest, stream grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
	return s.watch(stream)
}

// serve starts a server with the service behind a gate, and returns how to dial it.
func serve(t *testing.T, g *fence.Gate, opts *grpcfence.Options, s *service) func(fence.Holder) health.HealthClient {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcfence.UnaryServer(g, opts)),
		grpc.ChainStreamInterceptor(grpcfence.StreamServer(g, opts)),
	)
	health.RegisterHealthServer(server, s)
	go func() { _ = server.Serve(listener) }() // it ends with Stop
	t.Cleanup(server.Stop)
	dial := func(opts ...grpc.DialOption) health.HealthClient {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		conn, err := grpc.NewClient("passthrough:bufconn", opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return health.NewHealthClient(conn)
	}
	return func(h fence.Holder) health.HealthClient {
		if h == bare {
			return dial()
		}
		return dial(grpc.WithChainUnaryInterceptor(grpcfence.UnaryClient(h)), grpc.WithChainStreamInterceptor(grpcfence.StreamClient(h)))
	}
}

// bare stands for a client without the interceptors.
const bare = fence.Token(-1)

// wantFenced checks that err is a fence's refusal and its status.
func wantFenced(t *testing.T, err error, resource string, token, newest leasehold.Token) {
	t.Helper()
	fencecheck.Refused(t, err, resource, token, newest)
	if code := status.Code(err); code != codes.FailedPrecondition {
		t.Errorf("the status of %v is %v", err, code)
	}
}

func wantLost(t *testing.T, lease *leasehold.Lease) {
	t.Helper()
	if err := lease.Err(); !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, fence.ErrFenced) {
		t.Errorf("the lease says %v", err)
	}
}

// reason is that of the ErrorInfo in a refusal.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == grpcfence.Domain {
			return info.Reason
		}
	}
	return ""
}

func TestCalls(t *testing.T) {
	var served []leasehold.Token
	g := fence.NewGate(&fence.Memory{})
	client := serve(t, g, &grpcfence.Options{
		Resource: func(_ context.Context, _ string, req any) string {
			return req.(*health.HealthCheckRequest).Service //nolint:errcheck // it panics
		},
	}, &service{check: func(ctx context.Context, _ string) error {
		served = append(served, fence.HolderFrom(ctx).Token())
		return nil
	}})(bare)
	for _, step := range []struct {
		resource string
		tokens   []string
		code     codes.Code
		reason   string
	}{
		{"a", []string{"7"}, codes.OK, ""},
		{"a", []string{"6"}, codes.FailedPrecondition, "FENCED"},
		{"b", []string{"6"}, codes.OK, ""},
		{"a", []string{"7"}, codes.OK, ""},
		{"a", nil, codes.InvalidArgument, "TOKEN_REQUIRED"},
		{"a", []string{"8", "8"}, codes.InvalidArgument, "NOT_A_TOKEN"},
		{"a", []string{""}, codes.InvalidArgument, "NOT_A_TOKEN"},
		{"a", []string{"0"}, codes.InvalidArgument, "NOT_A_TOKEN"},
		{"a", []string{"+8"}, codes.InvalidArgument, "NOT_A_TOKEN"},
		{"a", []string{"7"}, codes.OK, ""},
	} {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{grpcfence.Key: step.tokens})
		_, err := client.Check(ctx, &health.HealthCheckRequest{Service: step.resource})
		if status.Code(err) != step.code || reason(err) != step.reason {
			t.Errorf("%s %q: %v %s, want %v %s", step.resource, step.tokens, err, reason(err), step.code, step.reason)
		}
	}
	if want := []leasehold.Token{7, 6, 7, 7}; !slices.Equal(served, want) {
		t.Errorf("served %v, want %v", served, want)
	}
}

// A is in its handler, and paused there; B comes, and is served once A has given up. A
// learns why, and its lease ends. The same for a stream.
func TestDrain(t *testing.T) {
	for _, kind := range []string{"call", "stream"} {
		t.Run(kind, func(t *testing.T) {
			entered := make(chan struct{})
			lease := fencecheck.Lease(t)
			newest := fence.Token(lease.Token() + 1)
			left := false // ordered by the gate
			work := func(ctx context.Context) error {
				if fence.HolderFrom(ctx).Token() == newest.Token() {
					if !left {
						t.Error("B is served while A is inside")
					}
					return nil
				}
				close(entered)
				<-ctx.Done()
				left = true
				return ctx.Err()
			}
			dial := serve(t, fence.NewGate(&fence.Memory{}), &grpcfence.Options{
				Resource: func(context.Context, string, any) string { return "r" },
			}, &service{
				check: func(ctx context.Context, _ string) error { return work(ctx) },
				watch: func(s grpc.ServerStreamingServer[health.HealthCheckResponse]) error { return work(s.Context()) },
			})
			first := make(chan error, 1)
			go func() {
				if kind == "call" {
					_, err := dial(lease).Check(t.Context(), &health.HealthCheckRequest{})
					first <- err
					return
				}
				stream, err := dial(lease).Watch(t.Context(), &health.HealthCheckRequest{})
				if err == nil {
					_, err = stream.Recv()
				}
				first <- err
			}()
			<-entered
			if _, err := dial(newest).Check(t.Context(), &health.HealthCheckRequest{}); err != nil {
				t.Errorf("B: %v", err)
			}
			wantFenced(t, <-first, "r", lease.Token(), newest.Token())
			wantLost(t, lease)
			// A call with a stale token does not even begin.
			stream, err := dial(fence.Token(lease.Token())).Watch(t.Context(), &health.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			wantFenced(t, err, "r", lease.Token(), newest.Token())
		})
	}
}

// A resource that the handler writes to refuses the token: the client gets the same
// error as from the gate. Unless a name is given, the resource is the method.
func TestRefusedFurtherOn(t *testing.T) {
	lease := fencecheck.Lease(t)
	dial := serve(t, fence.NewGate(&fence.Memory{}), nil, &service{check: func(ctx context.Context, _ string) error {
		return fence.Refuse(fence.HolderFrom(ctx), "a table", lease.Token()+5)
	}})
	_, err := dial(nil).Check(fence.WithHolder(t.Context(), lease), &health.HealthCheckRequest{})
	wantFenced(t, err, "a table", lease.Token(), lease.Token()+5)
	wantLost(t, lease)

	// In the handler's own name, so that its context does not end.
	own := serve(t, fence.NewGate(&fence.Memory{}), nil, &service{check: func(context.Context, string) error {
		return fence.Refuse(fence.Token(1), "a table", 2)
	}})
	_, err = own(fence.Token(1)).Check(t.Context(), &health.HealthCheckRequest{})
	wantFenced(t, err, "a table", 1, 2)

	_, err = dial(fence.Token(1)).Check(t.Context(), &health.HealthCheckRequest{})
	wantFenced(t, err, health.Health_Check_FullMethodName, 1, lease.Token())

	for h, want := range map[fence.Holder]error{lease: leasehold.ErrLost, fence.Token(0): fence.ErrNoToken, nil: fence.ErrNoToken} {
		if _, err := dial(h).Check(t.Context(), &health.HealthCheckRequest{}); !errors.Is(err, want) {
			t.Errorf("a call by %v: %v, want %v", h, err, want)
		}
		if _, err := dial(h).Watch(t.Context(), &health.HealthCheckRequest{}); !errors.Is(err, want) {
			t.Errorf("a stream by %v: %v, want %v", h, err, want)
		}
	}
}

// Other failures stay what they are, and do not end the lease.
func TestOtherErrors(t *testing.T) {
	lease := fencecheck.Lease(t)
	newest := map[string]string{"newest": "9223372036854775807"}
	other, err := status.New(codes.FailedPrecondition, "the directory is not empty").WithDetails(
		&errdetails.ErrorInfo{Reason: "FENCED", Domain: "elsewhere", Metadata: newest},
		&errdetails.ErrorInfo{Reason: "FULL", Domain: grpcfence.Domain, Metadata: newest},
		&errdetails.ErrorInfo{Reason: "FENCED", Domain: grpcfence.Domain, Metadata: map[string]string{"newest": "1"}},
		&errdetails.ErrorInfo{Reason: "FENCED", Domain: grpcfence.Domain},
	)
	if err != nil {
		t.Fatal(err)
	}
	mine := other.Err()
	var got []string
	client := serve(t, fence.NewGate(&fence.Memory{}), &grpcfence.Options{
		Optional: func(method string) bool { return method == health.Health_Check_FullMethodName },
	}, &service{check: func(ctx context.Context, _ string) error {
		md, _ := metadata.FromIncomingContext(ctx)
		got = md.Get(grpcfence.Key)
		return mine
	}})
	handedOn := metadata.AppendToOutgoingContext(t.Context(), grpcfence.Key, "1", "other", "kept")
	_, err = client(lease).Check(handedOn, &health.HealthCheckRequest{})
	if errors.Is(err, fence.ErrFenced) || status.Convert(err).Message() != status.Convert(mine).Message() || lease.Err() != nil {
		t.Errorf("got %v; the lease says %v", err, lease.Err())
	}
	if len(got) != 1 || got[0] != lease.Token().String() {
		t.Errorf("the server got the tokens %q", got)
	}
	if _, err = client(bare).Check(t.Context(), &health.HealthCheckRequest{}); status.Convert(err).Message() != status.Convert(mine).Message() || len(got) != 0 {
		t.Errorf("without a token, where it is optional: %v, %q", err, got)
	}
}

type broken struct{ err error }

func (b broken) Check(context.Context, string, fence.Holder) error { return b.err }

func TestCheckerFails(t *testing.T) {
	var log bytes.Buffer
	g := fence.NewGate(broken{errors.New("password authentication failed")})
	opts := &grpcfence.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	client := serve(t, g, opts, &service{check: func(context.Context, string) error {
		t.Error("the handler ran")
		return nil
	}})(fence.Token(1))
	_, err := client.Check(t.Context(), &health.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable || reason(err) != "NOT_CHECKED" || strings.Contains(err.Error(), "password") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "password") {
		t.Errorf("the log does not say why: %s", &log)
	}

	ctx, cancel := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs(grpcfence.Key, "1")))
	cancel()
	_, err = grpcfence.UnaryServer(g, nil)(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/s/m"}, nil)
	if status.Code(err) != codes.Canceled {
		t.Errorf("a call whose context has ended: %v", err)
	}
}
