// Package plain makes text from a store, or from anywhere else, safe to print: on a terminal a control character can
// hide, move or replace what stands beside it, or set the window's title.
//
// Whatever unicode.IsPrint does not know is escaped: C0 and C1 controls, DEL, controls of writing direction, and bytes
// that are not UTF-8.
package plain

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Word returns one name or value, as a quoted Go string if any of it must be escaped.
func Word(text string) string {
	if strings.ContainsFunc(text, unprintable) || !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

// Text returns lines with everything escaped but line ends and tabs.
func Text(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r != '\n' && r != '\t' && unprintable(r):
			escaped := strconv.QuoteRune(r)
			b.WriteString(escaped[1 : len(escaped)-1])
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// JSON returns JSON that means the same, with everything escaped that package encoding/json leaves in strings.
func JSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, unprintable) {
		return text
	}
	var b []byte
	for _, r := range string(text) { // encoding/json writes valid UTF-8
		switch {
		case r < ' ' || !unprintable(r): // between the strings
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
