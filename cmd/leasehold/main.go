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
	var version bool
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "Distributed locks and leader election on object storage",
		Long: `Distributed locks and leader election on object storage.

LOCK is a URL or a name.

  s3://bucket/key?region=eu-central-1        Amazon S3 and compatible stores
  gs://bucket/key                            Google Cloud Storage
  azblob://container/key?account=myaccount   Azure Blob Storage
  file:///dir/key                            a directory
  quorum://NAME/key                          several stores; a minority may fail
  backup, jobs/backup                        a name

A name is stored under the URL in LEASEHOLD_STORE. With --local it is stored in
a local directory, and the lock excludes only processes of this user on this
machine. A name has no colon, no dot before its first slash and no leading ~.

Every flag except --token can also be set by a variable: --lost-exit-code by
LEASEHOLD_LOST_EXIT_CODE and so on, but --holder by LEASEHOLD_HOLDER_NAME and
--quorum by LEASEHOLD_QUORUM_FILE. Flags override variables.`,
		Example: `  leasehold run --local hello -- echo "this ran under a lock"
  leasehold run s3://my-bucket/locks/backup -- ./backup.sh
  leasehold elect s3://my-bucket/leaders/web -- ./primary.sh
  leasehold status s3://my-bucket/locks/backup
  leasehold doctor s3://my-bucket/locks`,
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
	root.Flags().BoolVar(&version, "version", false, "print the version")
	all := root.PersistentFlags()
	all.StringVarP(&a.output, "output", "o", "text", "output `format`: text or json")
	all.BoolVarP(&a.verbose, "verbose", "v", false, "print more to stderr")
	all.BoolVarP(&a.quiet, "quiet", "q", false, "print only errors to stderr")
	all.BoolVar(&a.local, "local", false, "store named locks in a local directory")
	all.StringVar(&a.quorums, quorumFlag, "", "`file` with a name and its members' URLs per line,\nfor quorum://NAME")
	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	group("use", "Use locks:", a.run(), a.elect(), a.serve(), a.acquire(), a.renew(), a.release(), a.fence())
	group("show", "Show:", a.status(), a.list(), a.watch(), a.history(), a.shards())
	group("care", "Set up and repair:", a.doctor(), a.init(), a.breakLock(), a.move(), a.gc(), a.quorum(), a.cost())
	root.AddCommand(a.demo(), a.conformance(), a.version(), a.man(), a.events())
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
