// Command leasehold holds a lock on object storage while another command runs, or
// campaigns for the leadership that a lock stands for, and tells who holds one.
//
// Data goes to stdout, messages go to stderr. "leasehold run --help" lists the exit
// codes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/internal/guardian"
	_ "github.com/leasehold/leasehold/internal/guardian/early" // a guardian needs nothing else of this program
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/store"
)

func main() {
	guardian.Main()
	survivePipes()
	os.Exit(exec(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// flags are those that every subcommand has.
type flags struct {
	output  string
	verbose bool
	quiet   bool
	local   bool   // bare names are known on this machine only
	quorums string // a file
}

// An app is one run of the program.
type app struct {
	flags
	console console
	stdout  io.Writer
	printed printer   // cobra's stdout
	mkdir   bool      // the directory of a store may be made
	slowly  sync.Once // it was said that the store takes long

	// The store that was opened last, and the key of the lock in it, for messages.
	at   store.Store
	lock string
}

func exec(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	out := &talk{w: stderr}
	a := &app{console: console{w: out}, stdout: stdout}
	out.notice = a.console.dropped
	defer out.wait(endPatience)
	// net/http writes there, which no flag would keep from stderr.
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(a.console.logger().Handler(), slog.LevelDebug).Writer())
	root := a.root() //nolint:contextcheck // cobra hands the context on
	root.SetArgs(args)
	root.SetErr(out)
	err := root.ExecuteContext(ctx)
	if a.printed.err != nil {
		err = written(a.printed.err)
	}
	if err == nil {
		return 0
	}
	end, ok := errors.AsType[*exit](err)
	if !ok { // cobra's own
		end = &exit{exitUsage, fmt.Errorf("%w: %s", err, seeHelp(root))}
	}
	if end.err != nil {
		e := failure(end, a.message(end.err))
		a.console.event(slog.LevelError, e)
		if e.Docs != "" {
			a.console.remark("see %s", e.Docs)
		}
	}
	return end.code
}

func (a *app) root() *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "Leader election and distributed locks on object storage",
		Long: `Leader election and distributed locks on object storage.

LOCK is a URL, such as s3://bucket/key?region=eu-central-1, gs://bucket/key,
azblob://container/key?account=myaccount or file:///dir/key, or a name, such as
backup or jobs/backup. A name has no colon, no dot before its first slash and no ~ at its
beginning. Names are stored under the URL in the variable LEASEHOLD_STORE; with --local
they are in a directory of this user, and exclude nobody on other machines.

quorum://NAME/key is a lock on several stores, of which a minority may fail: see
leasehold quorum --help. --quorum is the file that has the members of NAME.

Every flag but --token can be given by a variable as well: --conflict-exit-code by
LEASEHOLD_CONFLICT_EXIT_CODE, and so on; --holder by LEASEHOLD_HOLDER_NAME, --quorum by
LEASEHOLD_QUORUM_FILE. The flag counts if both are given.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return subcommand(cmd, args)
			case version:
				return a.tellVersion()
			}
			return cmd.Help()
		},
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if strings.HasPrefix(cmd.Name(), cobra.ShellCompRequestCmd) {
				return nil // a shell asks, to which nothing is said
			}
			if err := a.passQuorums(); err != nil {
				return err
			}
			if err := fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			if err := a.console.begin(&a.flags); err != nil {
				return err
			}
			for _, line := range misread(os.Environ(), variables(cmd.Root())) {
				a.console.tell("%s", line)
			}
			return nil
		},
	}
	root.SetFlagErrorFunc(badFlag)
	root.Flags().BoolVar(&version, "version", false, "tell the version")
	all := root.PersistentFlags()
	all.StringVarP(&a.output, "output", "o", "text", "`format` of what leasehold itself prints: text or json")
	all.BoolVarP(&a.verbose, "verbose", "v", false, "say more on stderr")
	all.BoolVarP(&a.quiet, "quiet", "q", false, "say nothing but errors on stderr")
	all.BoolVar(&a.local, "local", false, "keep named locks in a directory of this user, on this machine only")
	all.StringVar(&a.quorums, quorumFlag, "", "`file` that has the members of quorum://NAME: in each line a name and URLs")
	root.AddCommand(a.run(), a.acquire(), a.renew(), a.release(), a.elect(), a.serve(), a.status(), a.watch(), a.list(),
		a.shards(), a.history(), a.init(), a.breakLock(), a.move(), a.gc(), a.fence(), a.doctor(), a.conformance(), a.cost(), a.quorum(),
		a.demo(), a.version(), a.man(), a.events())
	a.printed.w = a.stdout
	root.SetOut(&a.printed)
	a.completions(root)
	shellScripts(root)
	root.SetHelpCommand(helpCommand())
	return root
}

// print writes data: as JSON, or as lines of a name and a value.
func (a *app) print(text string, data any) error {
	if a.output == "json" {
		return a.writeData(toJSON(data))
	}
	return a.write(text)
}

// writeLine writes data as one line of JSON.
func (a *app) writeLine(data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // nothing that we print can fail
	}
	return a.writeData(string(plain.JSON(text)) + "\n")
}

// write writes lines for people, and nothing that a terminal would obey.
func (a *app) write(text string) error { return a.writeData(plain.Text(text)) }

// writeData writes what a program reads.
func (a *app) writeData(text string) error {
	_, err := io.WriteString(a.stdout, text)
	return written(err)
}

// A printer keeps the first error of cobra's own output, the help and the scripts of shells, which cobra drops or takes for
// a wrong command line.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) Write(text []byte) (int, error) {
	n, err := p.w.Write(text)
	if p.err == nil {
		p.err = err
	}
	return n, err
}

// written is the exit for a failure to write data. It does not return if nobody reads stdout any more.
func written(err error) error {
	if err == nil {
		return nil
	}
	dieOfStdout(err)
	return notWritten(err)
}

func notWritten(err error) error {
	return &exit{exitInternal, fmt.Errorf("cannot write to stdout: %w", err)}
}
