package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/guardian"
	"github.com/leasehold/leasehold/internal/localhttp"
)

const (
	demoBucket = "demo"
	demoLimit  = time.Minute // for all of it, on a machine that is busy

	demoLimitOfPage = 24 * time.Hour // where somebody looks at the page
)

func (a *app) demo() *cobra.Command {
	var page string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play an election with a crash; needs no bucket",
		Long: `Play an election with a crash.

The demo starts an S3 server in memory, for this machine only, and five
candidates, each a leasehold elect process. It kills the leader with SIGKILL,
and later lets another resign. It takes about ten seconds, and leaves nothing
behind.

With --http, the page of leasehold serve shows the election live, and the
candidates continue until an interrupt.

Exit codes: 0 only if a leader was elected each time, the tokens grew, and no
two candidates' commands ever ran at once.`,
		Example: `  leasehold demo
  leasehold demo --http            # then see http://127.0.0.1:4041/ui/
  leasehold demo --http=127.0.0.1:8080`,
		Args: atMost(0),
		RunE: func(*cobra.Command, []string) error { return a.stage(page) },
	}
	cmd.Flags().StringVar(&page, "http", "", "show the page of leasehold serve on\nthis local `address`")
	cmd.Flags().Lookup("http").NoOptDefVal = "127.0.0.1:4041"
	show := &cobra.Command{
		Use: "show", Hidden: true, Args: two,
		RunE: func(cmd *cobra.Command, args []string) error { return a.show(cmd.Context(), args[0], args[1], page) },
	}
	show.Flags().StringVar(&page, "http", "", "")
	cmd.AddCommand(show, &cobra.Command{
		Use: "work", Hidden: true, Args: one,
		RunE: func(_ *cobra.Command, args []string) error { return a.work(args[0]) },
	})
	return cmd
}

// stage runs the show under a guardian, as run does a command: so nothing of it
// stays behind, however it ends.
func (a *app) stage(page string) error {
	if a.output == "json" {
		return usage("the demo is for people: there is no --output json")
	}
	if page != "" {
		switch address, err := localhttp.ParseAddress(page); {
		case err != nil:
			return usage("--http: %w", err)
		case strings.HasPrefix(page, "unix:"), localhttp.CheckWith(address, localhttp.Options{}) != nil:
			return usage("--http %v: a browser on this machine is to reach it: give a port of 127.0.0.1", address)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return &exit{exitInternal, fmt.Errorf("cannot find this program to start it again: %w", err)}
	}
	return a.direct(self, page, limitOfDemo(page))
}

// limitOfDemo returns how long the demo may take.
func limitOfDemo(page string) time.Duration {
	if page != "" {
		return demoLimitOfPage
	}
	return demoLimit
}

// direct runs the show in another process of this program, self.
func (a *app) direct(self, page string, limit time.Duration) error {
	dir, err := os.MkdirTemp("", "leasehold-demo")
	if err != nil {
		return &exit{exitInternal, err}
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is a temporary directory
	argv := []string{self, "demo", "show", self, dir, "--http=" + page}
	if a.verbose {
		argv = append(argv, "--verbose")
	}
	signals := make(chan os.Signal, 8)
	defer listen(signals)()
	p, err := guardian.Start(guardian.Options{Argv: argv, Env: demoEnv(), Deadline: clock.Now() + limit, Grace: time.Second})
	if err != nil {
		return &exit{exitInternal, err}
	}
	for {
		select {
		case sig := <-signals:
			_ = p.Signal(sig) // it has ended, which shows at once
		case <-p.Done():
			switch status := p.Wait(); {
			case status.Expired:
				return &exit{exitInternal, fmt.Errorf("the demo was not over after %v, and was ended", limit)}
			case status.Code != 0:
				return &exit{status.Code, nil}
			}
			return nil
		}
	}
}

// demoEnv is the environment without what would change how the demo goes.
func demoEnv() []string {
	env := []string{
		"AWS_ACCESS_KEY_ID=demo", "AWS_SECRET_ACCESS_KEY=demo",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
	}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "AWS_") && !strings.HasPrefix(variable, "LEASEHOLD_") {
			env = append(env, variable)
		}
	}
	return env
}

// work is the work of a candidate of the demo while it leads: until it is told to
// end, it keeps a file locked that no two can have locked at once. The system
// unlocks it when the process ends, whatever ends it.
func (a *app) work(dir string) error {
	file := flock.New(filepath.Join(dir, "busy"))
	alone, err := file.TryLock()
	switch {
	case err != nil:
		return &exit{exitInternal, err}
	case !alone:
		fmt.Fprintln(a.stdout, "two")
		return &exit{exitInternal, errors.New("another candidate's command is running at the same time")}
	}
	fmt.Fprintln(a.stdout, "leads", os.Getenv(ownToken))
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // at the end of its input too
	return nil
}

// A demoServer is an S3 server in memory that counts its requests. It runs until
// the process ends.
type demoServer struct {
	endpoint  string
	http      *http.Server
	get, puts atomic.Int64
}

func startDemoServer(ctx context.Context) (*demoServer, error) {
	memory := s3mem.New()
	if err := memory.CreateBucket(demoBucket); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &demoServer{endpoint: "http://" + listener.Addr().String()}
	s3 := gofakes3.New(memory).Server()
	count := func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			s.get.Add(1)
		case http.MethodPut:
			s.puts.Add(1)
		}
		s3.ServeHTTP(w, r)
	}
	s.http = &http.Server{
		Handler: http.HandlerFunc(count), ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // it would tell of answers to clients that are killed, as one is here
	}
	go func() { _ = s.http.Serve(listener) }()
	return s, nil
}
