package grpcfence

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasehold/leasehold/fence"
)

// UnaryClient sends the token of h along with each call; nil means that of the holder
// that the call's context carries (see [fence.WithHolder]). It sends nothing for a
// holder without a token or whose lease has ended. A call that a fence refuses fails
// with an error that is its status and a [*fence.FencedError], and ends the lease.
// The call's context should be the lease's, so that the call ends with the lease.
func UnaryClient(h fence.Holder) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		by, err := holder(ctx, h)
		if err != nil {
			return fmt.Errorf("%s: nothing was sent: %w", method, err)
		}
		return heard(by, invoke(with(ctx, by), method, req, reply, cc, opts...))
	}
}

// StreamClient does for streams what [UnaryClient] does for calls. The refusal may come
// from any method of the stream that returns the status of the call.
func StreamClient(h fence.Holder) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		by, err := holder(ctx, h)
		if err != nil {
			return nil, fmt.Errorf("%s: nothing was sent: %w", method, err)
		}
		stream, err := open(with(ctx, by), desc, cc, method, opts...)
		if err != nil {
			return nil, heard(by, err)
		}
		return &clientStream{stream, by}, nil
	}
}

// with puts the token of h in the place of any that is to be sent, so that a server
// which hands the metadata of its own call on does not send two.
func with(ctx context.Context, h fence.Holder) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(Key, h.Token().String())
	return metadata.NewOutgoingContext(ctx, md)
}

type clientStream struct {
	grpc.ClientStream
	holder fence.Holder
}

func (s *clientStream) RecvMsg(m any) error { return heard(s.holder, s.ClientStream.RecvMsg(m)) }

func (s *clientStream) SendMsg(m any) error { return heard(s.holder, s.ClientStream.SendMsg(m)) }

func (s *clientStream) CloseSend() error { return heard(s.holder, s.ClientStream.CloseSend()) }

func (s *clientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	return md, heard(s.holder, err)
}
