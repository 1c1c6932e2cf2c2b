// Package manpage writes the manual pages of a command: what its help says, as roff.
//
// The help texts are made for terminals, with tables by indentation, so their indented lines
// stay as they are and the others are filled. A converter that takes them for Markdown, as
// cobra's does, runs the rows of such a table together.
package manpage

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Manual is what all pages have in common.
type Manual struct {
	Source   string // the program and its version
	Date     string // 2026-11-23, or nothing
	Variable func(flag string) string
}

// Name is the name of a command's page, which is that of its file without the section.
func Name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// Commands are a command and those below it that have pages: all that are not hidden.
func Commands(cmd *cobra.Command) []*cobra.Command {
	if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() || cmd.Name() == "help" {
		return nil
	}
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		all = append(all, Commands(c)...)
	}
	return all
}

// Page is the page of a command, in section 1.
func (m *Manual) Page(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	p := &page{}
	p.line(`.\" Generated from the command's help.`)
	p.line(fmt.Sprintf(".TH %s 1 %s %s %s", quoted(strings.ToUpper(Name(cmd))), quoted(m.Date), quoted(m.Source), quoted(cmd.Root().Name())))
	p.line(".nh") // the name of a variable that is hyphenated cannot be copied
	p.line(".ad l")
	p.section("NAME")
	p.text(Name(cmd) + " \x00 " + cmd.Short)
	p.section("SYNOPSIS")
	p.synopsis(cmd)
	p.section("DESCRIPTION")
	if cmd.Long != "" {
		p.prose(cmd.Long)
	} else {
		p.prose(cmd.Short + ".")
	}
	if subcommands := below(cmd); len(subcommands) > 0 {
		p.section("COMMANDS")
		for _, c := range subcommands {
			p.line(".TP")
			p.line(".BR " + quoted(Name(c)) + " (1)")
			p.text(c.Short)
		}
	}
	m.flags(p, "OPTIONS", cmd.NonInheritedFlags())
	m.flags(p, "GLOBAL OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.literal(strings.Split(cmd.Example, "\n"))
	}
	p.seeAlso(cmd)
	return p.String()
}

// below are the commands right below one that have pages.
func below(cmd *cobra.Command) (subcommands []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if len(Commands(c)) > 0 {
			subcommands = append(subcommands, c)
		}
	}
	return subcommands
}

func (m *Manual) flags(p *page, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p.section(title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := `\fB` + escaped("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			name = `\fB` + escaped("-"+f.Shorthand) + `\fR, ` + name
		}
		if value != "" {
			name += ` \fI` + escaped(value) + `\fR`
		}
		p.line(".TP")
		p.line(name)
		if d := f.DefValue; d != "" && d != "false" && d != "[]" {
			usage += " (default " + d + ")"
		}
		if v := m.Variable(f.Name); v != "" {
			usage += ". Variable: " + v
		}
		p.text(strings.Join(strings.Fields(usage), " "))
	})
}

// A page is roff that is being written.
type page struct {
	strings.Builder
	pause bool // a paragraph begins with the next line
}

func (p *page) line(roff string) {
	if p.pause && !strings.HasPrefix(roff, ".SH") {
		p.WriteString(".PP\n")
	}
	p.pause = false
	p.WriteString(roff + "\n")
}

// paragraph has the next line begin one. Right after a section's title one has begun, and two
// are none more than one: mandoc warns of both.
func (p *page) paragraph() { p.pause = !p.first() }

func (p *page) first() bool {
	text := strings.TrimSuffix(p.String(), "\n")
	return strings.HasPrefix(text[strings.LastIndexByte(text, '\n')+1:], ".SH")
}

func (p *page) section(title string) { p.line(".SH " + quoted(title)) }

// text writes one line of text, in which NUL stands for the dash between a name and what it is.
func (p *page) text(text string) { p.line(strings.ReplaceAll(escaped(text), "\x00", `\-`)) }

func (p *page) synopsis(cmd *cobra.Command) {
	path := cmd.CommandPath()
	rest := strings.TrimSpace(strings.TrimPrefix(cmd.UseLine(), path))
	p.line(`\fB` + escaped(path) + `\fR ` + escaped(rest))
}

// prose writes text whose indented lines stay as they are.
func (p *page) prose(text string) {
	var block []string // the indented lines that come now
	flush := func() {
		for len(block) > 0 && block[len(block)-1] == "" {
			block = block[:len(block)-1]
		}
		if len(block) > 0 {
			p.literal(block)
			p.paragraph()
		}
		block = nil
	}
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		switch indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"); {
		case indented:
			block = append(block, line)
		case line == "" && len(block) > 0:
			block = append(block, line) // the block may go on behind it
		case line == "":
			p.paragraph()
		default:
			flush()
			p.text(line)
		}
	}
	flush()
}

// literal writes lines as they are, in a font for that.
func (p *page) literal(lines []string) {
	p.paragraph()
	p.line(".nf")
	for _, l := range lines {
		if l == "" {
			l = `\&` // an empty line is a request of its own
			p.line(l)
			continue
		}
		p.line(escaped(strings.ReplaceAll(l, "\t", "    ")))
	}
	p.line(".fi")
}

func (p *page) seeAlso(cmd *cobra.Command) {
	var names []string
	if parent := cmd.Parent(); parent != nil {
		names = append(names, Name(parent))
		for _, c := range below(parent) {
			if c != cmd {
				names = append(names, Name(c))
			}
		}
	}
	for _, c := range below(cmd) {
		names = append(names, Name(c))
	}
	if len(names) == 0 {
		return
	}
	p.section("SEE ALSO")
	for i, name := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		p.line(".BR " + quoted(name) + " (1)" + end)
	}
}

// escaped is text as roff that shows it: hyphens can be copied into a shell, and no line is
// taken for a request.
func escaped(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r == '.' && i == 0:
			b.WriteString(`\&.`)
		case r >= utf8.RuneSelf:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// quoted is text as one argument of a macro.
func quoted(text string) string {
	return `"` + strings.ReplaceAll(escaped(text), `"`, `""`) + `"`
}
