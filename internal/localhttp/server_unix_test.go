//go:build unix

package localhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/localhttp"
)

// fewFilesEnv makes the test binary a process that may have few files open.
const (
	fewFilesEnv = "LEASEHOLD_TEST_FEW_FILES"
	fewFiles    = 164
	fewConns    = (fewFiles - 64) / 2
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

// TestFewFiles: however many connect, a server leaves its process as many files as its requests can take for the store.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fewFilesEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	address, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	const flood = 300
	for range flood {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimSpace(address))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = io.Copy(io.Discard, c)
			closed <- struct{}{}
		}()
	}
	for range flood - fewConns {
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

// beShortOfFiles serves, with few files, and opens some again and again until in ends.
func beShortOfFiles(in io.Reader, out io.Writer) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: fewFiles, Max: fewFiles}); err != nil {
		return err
	}
	if most := localhttp.MaxConns(); most != fewConns {
		return fmt.Errorf("there may be %d connections", most)
	}
	a, err := localhttp.ParseAddress("127.0.0.1:0")
	if err != nil {
		return err
	}
	s, err := localhttp.ListenWith(context.Background(), a, localhttp.Options{Conns: 4096})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(nil, slog.New(slog.DiscardHandler)) }()
	fmt.Fprintln(out, s.Address())
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(end)
	}()
	for {
		select {
		case err := <-failed:
			return errors.Join(errors.New("it serves no more"), err)
		case <-end:
			fmt.Fprintln(out, "enough")
			return nil
		case <-time.After(time.Millisecond):
		}
		if err := openAgain(fewConns); err != nil {
			return err
		}
	}
}

func openAgain(n int) error {
	for range n {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer f.Close()
	}
	return nil
}
