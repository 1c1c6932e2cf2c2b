package manpage_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/internal/manpage"
)

// A page has all that the help has: text filled, indented lines as they are, and nothing that
// roff would take for its own.
func TestPage(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "prog", Short: "Do things", Long: "Do things."}
	var all bool
	root.PersistentFlags().BoolVarP(&all, "all-of-it", "a", false, "say \"all\"")
	hidden := &cobra.Command{Use: "hidden", Hidden: true, Run: func(*cobra.Command, []string) {}}
	sub := &cobra.Command{
		Use: "sub NAME", Short: "Do a 'thing'", Run: func(*cobra.Command, []string) {},
		Long:    "First line,\nand the second: C:\\x.\n\nA table:\n  one    it's ^ and ~\n\n  .two   more…\nThen\n.text that is no request.\n'nor this\n",
		Example: "  prog sub a-b `c`",
	}
	var n int
	sub.Flags().IntVar(&n, "count", 3, "as many `times`,\nor so")
	root.AddCommand(sub, hidden)
	m := &manpage.Manual{Source: "prog v1", Date: "2026-11-23", Variable: func(flag string) string { return strings.ToUpper(flag) }}
	var names []string
	for _, c := range manpage.Commands(root) {
		names = append(names, manpage.Name(c))
	}
	if got := strings.Join(names, " "); got != "prog prog-sub" {
		t.Errorf("pages for %s", got)
	}
	const want = `.\" Generated from the command's help.
.TH "PROG\-SUB" 1 "2026\-11\-23" "prog v1" "prog"
.nh
.ad l
.SH "NAME"
prog\-sub \- Do a \(aqthing\(aq
.SH "SYNOPSIS"
\fBprog sub\fR NAME [flags]
.SH "DESCRIPTION"
First line,
and the second: C:\ex.
.PP
A table:
.PP
.nf
  one    it\(aqs \(ha and \(ti
\&
  .two   more\[u2026]
.fi
.PP
Then
\&.text that is no request.
\(aqnor this
.SH "OPTIONS"
.TP
\fB\-\-count\fR \fItimes\fR
as many times, or so (default 3). Variable: COUNT
.TP
\fB\-h\fR, \fB\-\-help\fR
help for sub. Variable: HELP
.SH "GLOBAL OPTIONS"
.TP
\fB\-a\fR, \fB\-\-all\-of\-it\fR
say "all". Variable: ALL\-OF\-IT
.SH "EXAMPLES"
.nf
  prog sub a\-b \(gac\(ga
.fi
.SH "SEE ALSO"
.BR "prog" (1)
`
	if got := m.Page(sub); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if page := m.Page(root); !strings.Contains(page, ".SH \"COMMANDS\"\n.TP\n.BR \"prog\\-sub\" (1)\nDo a") || strings.Contains(page, "hidden") {
		t.Errorf("the page of the root has other commands:\n%s", page)
	}
}
