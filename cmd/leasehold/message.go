package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// message is the text of an error for a user: the cause first, then where it was, once.
// The ID of the request is for the store's operators, so it takes -v to be told.
func (a *app) message(err error) string {
	text := a.sentence(err)
	if errors.Is(err, syscall.EMFILE) {
		text += "; this process may open no more files: raise its limit (ulimit -n)"
	}
	return text
}

func (a *app) sentence(err error) string {
	failure, ok := errors.AsType[*store.Error](err)
	if errors.Is(err, quorumstore.ErrNoQuorum) && a.at != nil {
		return readable(a.at.String()) + ": " + noQuorum
	}
	text := oneLine(err)
	if !ok {
		// The text of the sentinel follows the sentence that explains it.
		if said, found := strings.CutSuffix(text, ": "+store.ErrNotExist.Error()); found && strings.Contains(said, ";") {
			text = said
		}
		return once(text)
	}
	before, after, found := strings.Cut(text, oneLine(failure))
	if !found {
		return once(text)
	}
	where := a.where(failure)
	// The lock is named where the request is.
	context := strings.TrimPrefix(before, "the lock "+a.objectAt(a.lock)+": ")
	var about []string
	if context == "" {
		about = append(about, where)
	}
	if id := store.RequestIDOf(err); id != "" && a.verbose {
		about = append(about, "request ID "+id)
	}
	text = once(fmt.Sprintf("%s%v%s%s", context, failure.Kind, cause(failure, where), after))
	if len(about) > 0 {
		text += " (" + strings.Join(about, ", ") + ")"
	}
	return text
}

// where is what was asked of which object.
func (a *app) where(failure *store.Error) string {
	if a.at == nil || failure.Op == "lock" {
		return fmt.Sprintf("%s %q", failure.Op, failure.Key)
	}
	return failure.Op + " " + readable(a.objectAt(failure.Key))
}

// readable is a URL with the characters that stand for themselves.
func readable(raw string) string {
	path, query, found := strings.Cut(raw, "?")
	if text, err := url.PathUnescape(path); err == nil {
		path = plain.Word(text)
	}
	if found {
		path += "?" + query
	}
	return path
}

// objectAt is the URL of an object, for people.
func (a *app) objectAt(key string) string {
	switch {
	case a.at == nil:
		return key
	case key == "":
		return a.at.String()
	}
	return layout.Object{Store: a.at, Key: key}.String()
}

// cause is why a request failed, without the address that it went to where that is known.
func cause(failure *store.Error, where string) string {
	if failure.Cause == nil {
		return ""
	}
	text := oneLine(failure.Cause)
	after := func(inner error) {
		if i := strings.Index(text, inner.Error()); i > 0 {
			text = text[i:]
		}
	}
	if request, ok := errors.AsType[*url.Error](failure.Cause); ok {
		after(request.Err)
	}
	if dial, ok := errors.AsType[*net.OpError](failure.Cause); ok && dial.Addr != nil && strings.Contains(where, dial.Addr.String()) {
		after(dial.Err)
	}
	if name, ok := errors.AsType[*net.DNSError](failure.Cause); ok && strings.Contains(where, name.Name) {
		text = strings.Replace(text, name.Error(), name.Err, 1)
	}
	return ": " + text
}

// shortest is how long what is said must be at least to be told from a chance.
const shortest = 12

// once leaves out of a message what it has said already: the parts of an error, each of
// which is right by itself, know nothing of each other.
func once(text string) string {
	var kept strings.Builder
	var said []string
	for text != "" {
		part, divider, rest := text, "", ""
		if i := next(text); i >= 0 {
			part, divider, rest = text[:i], text[i:i+2], text[i+2:]
		}
		if lower := strings.ToLower(part); !repeats(lower, said) {
			said = append(said, lower)
			kept.WriteString(part + divider)
		} else if rest == "" || divider == "; " {
			trimmed := strings.TrimRight(kept.String(), ":; ") + divider
			kept.Reset()
			kept.WriteString(trimmed)
		}
		text = rest
	}
	return kept.String()
}

// next is where the next part of a message ends, or -1.
func next(text string) int {
	colon, semicolon := strings.Index(text, ": "), strings.Index(text, "; ")
	if colon < 0 || semicolon >= 0 && semicolon < colon {
		return semicolon
	}
	return colon
}

// repeats reports that a part says something again.
func repeats(part string, said []string) bool {
	for _, s := range said {
		if len(s) >= shortest && strings.Contains(part, s) {
			return true
		}
	}
	return false
}
