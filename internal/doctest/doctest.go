// Package doctest runs what the documentation shows: the command lines, the programs and what they print. Its tests do
// so for all pages, on a real server; each page gets one of its own.
//
// A page stays plain Markdown. A block of "sh" is run. The rest that is to be known of a block stands before it, in a
// comment that no reader sees:
//
//	<!-- test: file NAME -->      the block is the file NAME, which the next blocks use
//	<!-- test: prints -->         this is what the last block of sh has printed; … stands for anything
//	<!-- test: exit N -->         it ends with this code
//	<!-- test: background -->     it runs until the page is over
//	<!-- test: needs TOOL -->     it is left out, and said to be, where that is not installed
//	<!-- test: same FILE -->      the block is FILE, of the repository, word by word, or a part of it; that is tested elsewhere
//	<!-- test: skip REASON -->    it is not run, and the reason is printed
//	<!-- test: setup              what it takes, of sh, that no reader needs to see
//	…
//	-->
package doctest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Step is one thing to do with a page.
type Step struct {
	Line     int    // of the page, where its text begins
	Do       string // a word of the table above, or "run"
	Argument string // of that word
	Language string // of the block, "" if it has none
	Text     string
	Exit     int      // of what is run
	Needs    []string // to run it
}

var words = []string{"file", "prints", "exit", "background", "needs", "same", "skip", "setup"}

// Parse gives the steps of a page, in order. It fails where a block of commands, or one that the page gives a word,
// cannot be understood: a block that is not run for a mistake would never be noticed.
func Parse(page string) ([]Step, error) {
	var steps []Step
	var pending []Step // the words before the next block
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		switch {
		case strings.HasPrefix(line, "<!-- test:"):
			word, body, end, err := comment(lines, i)
			if err != nil {
				return nil, err
			}
			word.Line, i = i+1, end
			if word.Do == "setup" {
				word.Text, word.Language = body, "sh"
				steps = append(steps, word)
				continue
			}
			pending = append(pending, word)
		case strings.HasPrefix(line, "```"):
			indent := len(lines[i]) - len(strings.TrimLeft(lines[i], " "))
			block := Step{Line: i + 2, Do: "run", Language: strings.TrimLeft(line, "`")}
			fence := line[:len(line)-len(block.Language)]
			from := i + 1
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != fence; i++ {
				lines[i] = lines[i][min(indent, len(lines[i])-len(strings.TrimLeft(lines[i], " "))):]
			}
			if i == len(lines) {
				return nil, fmt.Errorf("line %d: a block without an end", from)
			}
			block.Text = strings.Join(lines[from:i], "\n") + "\n"
			if err := block.take(pending); err != nil {
				return nil, err
			}
			pending = nil
			steps = append(steps, block)
		case line == "", strings.HasPrefix(line, "<!--"): // another test's
		case len(pending) > 0:
			return nil, fmt.Errorf("line %d: no block follows the comment before it", i+1)
		}
	}
	if len(pending) > 0 {
		return nil, fmt.Errorf("line %d: no block follows", pending[0].Line)
	}
	return steps, nil
}

// comment reads the one that begins at a line, and gives the line at which it ends.
func comment(lines []string, at int) (word Step, body string, end int, err error) {
	text, rest := strings.TrimPrefix(strings.TrimSpace(lines[at]), "<!-- test:"), []string(nil)
	for end = at; !strings.Contains(lines[end], "-->"); {
		if end++; end == len(lines) {
			return word, "", end, fmt.Errorf("line %d: a comment without an end", at+1)
		}
		rest = append(rest, lines[end])
	}
	if len(rest) > 0 {
		body = strings.Join(rest[:len(rest)-1], "\n") + "\n"
	}
	text, _, _ = strings.Cut(text, "-->")
	word.Do, word.Argument, _ = strings.Cut(strings.TrimSpace(text), " ")
	if !slices.Contains(words, word.Do) {
		return word, "", end, fmt.Errorf("line %d: %q is none of %s", at+1, word.Do, strings.Join(words, ", "))
	}
	if len(rest) > 0 != (word.Do == "setup") {
		return word, "", end, fmt.Errorf("line %d: only setup has more than a line", at+1)
	}
	return word, body, end, nil
}

// take gives a block the words before it.
func (s *Step) take(words []Step) (err error) {
	for _, w := range words {
		switch w.Do {
		case "exit":
			if s.Exit, err = strconv.Atoi(w.Argument); err != nil {
				return fmt.Errorf("line %d: %w", w.Line, err)
			}
		case "needs":
			s.Needs = strings.Fields(w.Argument)
		default:
			if s.Do != "run" {
				return fmt.Errorf("line %d: the block has two words already, %s and %s", w.Line, s.Do, w.Do)
			}
			s.Do, s.Argument = w.Do, w.Argument
		}
	}
	switch {
	case (s.Do == "file" || s.Do == "same" || s.Do == "skip") && s.Argument == "":
		return fmt.Errorf("line %d: %s of what?", s.Line, s.Do)
	case s.Do != "skip" && strings.TrimSpace(s.Text) == "":
		return fmt.Errorf("line %d: an empty block", s.Line)
	case s.Do == "run" && s.Language != "sh":
		return fmt.Errorf("line %d: a block of %q is not run, and does not say why", s.Line, s.Language)
	}
	return nil
}

// Matches reports whether a program has printed what a page shows. A … stands for anything, and blanks that follow
// each other, which columns are made of, count as one.
func Matches(shown, printed string) bool {
	parts := strings.Split(squeeze(shown), "…")
	rest := squeeze(printed)
	for i, part := range parts {
		at := strings.Index(rest, part)
		switch {
		case at < 0, i == 0 && at > 0:
			return false
		case i == len(parts)-1 && i > 0:
			return strings.HasSuffix(rest, part)
		}
		rest = rest[at+len(part):]
	}
	return rest == ""
}

func squeeze(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}
