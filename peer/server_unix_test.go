//go:build unix

package peer_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/peer"
)

// fewFilesEnv makes the test binary a process that may have few files open.
const (
	fewFilesEnv = "LEASEHOLD_TEST_FEW_FILES"
	fewFiles    = 100
)

func TestMain(m *testing.M) {
	if os.Getenv(fewFilesEnv) == "" {
		os.Exit(m.Run())
	}
	if err := beShortOfFiles(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestFewFiles: connections to a leader leave it the files that it needs for other
// things, such as its store. It used to be able to take them all.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	// A file that whoever started this test left open would be one of the few.
	for fd := 3; fd < fewFiles; fd++ {
		syscall.CloseOnExec(fd)
	}
	cmd := exec.CommandContext(t.Context(), must(os.Executable()))
	cmd.Env = append(os.Environ(), fewFilesEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, stdout := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	address := strings.TrimSpace(must(out.ReadString('\n')))
	closed := make(chan struct{})
	for range fewFiles {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = io.Copy(io.Discard, c)
			closed <- struct{}{}
		}()
	}
	for range fewFiles - fewFiles*3/4 {
		<-closed
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	if said, err := io.ReadAll(out); err != nil || string(said) != "enough\n" {
		t.Errorf("it said %q, %v", said, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// beShortOfFiles serves, with few files, and opens ten again and again until in ends.
func beShortOfFiles(in io.Reader, out io.Writer) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: fewFiles, Max: fewFiles}); err != nil {
		return err
	}
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
