package peer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/leasehold/leasehold/peer"
)

// beShortOfFiles serves, and opens ten files again and again until in ends.
func beShortOfFiles(in io.Reader, out io.Writer) error {
	s, err := peer.NewServer(&peer.ServerOptions{Addr: "127.0.0.1:0", Plain: true, Handler: http.NotFoundHandler()})
	if err != nil {
		return err
	}
	if err := s.Start(context.Background()); err != nil {
		return err
	}
	fmt.Fprintln(out, s.Addr())
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(end)
	}()
	for {
		select {
		case <-end:
			fmt.Fprintln(out, "enough")
			return nil
		case <-time.After(time.Millisecond):
		}
		if err := openTen(); err != nil {
			return err
		}
	}
}

func openTen() error {
	for range 10 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer f.Close()
	}
	return nil
}
