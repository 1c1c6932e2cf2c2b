package plain_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/leasehold/leasehold/internal/plain"
)

func TestEscapes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, word, lines string }{
		{"web-1", "web-1", "web-1"},
		{"größe 日本", "größe 日本", "größe 日本"},
		{"\x1b]0;title\a", `"\x1b]0;title\a"`, `\x1b]0;title\a`},
		{"a\nb\tc", `"a\nb\tc"`, "a\nb\tc"},
		{"a\rb", `"a\rb"`, `a\rb`},
		{"\x7f\u009b2J", `"\x7f\u009b2J"`, `\x7f\u009b2J`},
		{"\u202egpj.exe\u2066", `"\u202egpj.exe\u2066"`, `\u202egpj.exe\u2066`},
		{"\xff", `"\xff"`, `\xff`},
		{"\U000e0041", `"\U000e0041"`, `\U000e0041`},
		{`it's \ "quoted"`, `it's \ "quoted"`, `it's \ "quoted"`},
	} {
		if got := plain.Word(tt.text); got != tt.word {
			t.Errorf("Word(%q) is %s, want %s", tt.text, got, tt.word)
		}
		if got := plain.Text(tt.text); got != tt.lines {
			t.Errorf("Text(%q) is %q, want %q", tt.text, got, tt.lines)
		}
	}
}

// Nothing gets through, and JSON means what it meant.
func FuzzPlain(f *testing.F) {
	for _, seed := range []string{"", "a\x1b\x7f\u0085\u202e\u2028", "\xff\xed\xa0\x80", "\U000e0041\u00a0\ufeff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bad := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
		encoded, err := json.MarshalIndent(map[string]string{text: text}, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		safe := plain.JSON(encoded)
		for _, got := range []string{plain.Word(text), plain.Text(text), string(safe)} {
			if strings.ContainsFunc(got, bad) || !utf8.ValidString(got) {
				t.Errorf("%q gives %q", text, got)
			}
		}
		var before, after map[string]string
		if json.Unmarshal(encoded, &before) != nil || json.Unmarshal(safe, &after) != nil {
			t.Fatalf("%q is not JSON any more: %q", encoded, safe)
		}
		for key, value := range before {
			if after[key] != value {
				t.Errorf("%q means %q, want %q", safe, after[key], value)
			}
		}
	})
}
