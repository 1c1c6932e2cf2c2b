package watchview_test

import (
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/clipperhouse/displaywidth"

	"github.com/leasehold/leasehold/internal/watchview"
)

// A screen is a terminal that knows the sequences which are drawn with, and refuses others.
type screen struct {
	rows []string
	sent int
}

var escape = regexp.MustCompile(`^\x1b\[(\d*)(?:;(\d+))?([HJKm])`)

func (s *screen) take(t *testing.T, text string, width, height int) {
	t.Helper()
	s.sent += len(text)
	row := 0
	for text != "" {
		if m := escape.FindStringSubmatch(text); m != nil {
			text = text[len(m[0]):]
			switch m[3] {
			case "H":
				if row = 0; m[1] != "" {
					row, _ = strconv.Atoi(m[1])
					row--
				}
			case "J":
				s.rows = make([]string, height)
			case "K":
				s.rows[row] = ""
			}
			continue
		}
		r := []rune(text)[0]
		if r < ' ' {
			t.Fatalf("a control character is drawn: %q", text)
		}
		s.rows[row] += string(r)
		text = text[len(string(r)):]
		if w := displaywidth.String(s.rows[row]); w > width {
			t.Fatalf("row %d has %d columns of %d: %q", row, w, width, s.rows[row])
		}
	}
}

// Whatever was on the screen, drawing makes it what is to be there, and sends no row again.
func TestDraw(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 0))
	words := []string{"", "held", "日本語", "a\u0301", "1795418497819", "👩‍👩‍👧‍👦", strings.Repeat("x", 30)}
	f, s := watchview.NewFrame(true), &screen{}
	width, height := 20, 5
	for step := range 3000 {
		if rng.IntN(10) == 0 {
			width, height = rng.IntN(40), rng.IntN(8)
		}
		lines := make([]watchview.Line, rng.IntN(height+1))
		for i := range lines {
			for range rng.IntN(4) {
				lines[i] = append(lines[i], watchview.Span{Text: words[rng.IntN(len(words))], Style: watchview.Style(rng.IntN(6))})
			}
		}
		s.take(t, f.Draw(lines, width, height), width, height)
		want := make([]string, height)
		for i, l := range lines {
			want[i] = l.Encode(width, false)
		}
		if !reflect.DeepEqual(s.rows, want) {
			t.Fatalf("step %d: the screen shows %q, want %q", step, s.rows, want)
		}
		if again := f.Draw(lines, width, height); again != "" {
			t.Fatalf("step %d: %q is sent again", step, again)
		}
	}
	f.Reset()
	if all := f.Draw([]watchview.Line{{{Text: "a"}}}, 9, 2); all != "\x1b[H\x1b[2J\x1b[1;1H\x1b[2Ka" {
		t.Errorf("after a reset %q is sent", all)
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	line := watchview.Line{{Text: "ab", Style: watchview.Bold}, {Text: "日本"}, {Text: "c", Style: watchview.Bad}}
	for width, want := range []string{"", "…", "a…", "ab…", "ab…", "ab日…", "ab日…", "ab日本c", "ab日本c"} {
		if got := line.Encode(width, false); got != want {
			t.Errorf("in %d columns %q, want %q", width, got, want)
		}
	}
	if got, want := line.Encode(9, true), "\x1b[1mab\x1b[0m日本\x1b[31mc\x1b[0m"; got != want {
		t.Errorf("with colours %q, want %q", got, want)
	}
	if got, want := line.Encode(2, true), "\x1b[1ma\x1b[0m…"; got != want {
		t.Errorf("with colours, cut: %q, want %q", got, want)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		typed string
		keys  []watchview.Key
		rest  string
	}{
		{"q", []watchview.Key{watchview.Quit}, ""},
		{"\x03", []watchview.Key{watchview.Interrupt}, ""},
		{"\x1a", []watchview.Key{watchview.Suspend}, ""},
		{"\x0c", []watchview.Key{watchview.Redraw}, ""},
		{"jk", []watchview.Key{watchview.Down, watchview.Up}, ""},
		{"\x1b[A\x1b[B\x1bOA", []watchview.Key{watchview.Up, watchview.Down, watchview.Up}, ""},
		{"\x1b[5~\x1b[6~", []watchview.Key{watchview.PageUp, watchview.PageDown}, ""},
		{"\x1b[H\x1b[4~", []watchview.Key{watchview.Home, watchview.End}, ""},
		// In pieces.
		{"j\x1b", []watchview.Key{watchview.Down}, "\x1b"},
		{"\x1b[", nil, "\x1b["},
		{"\x1b[5", nil, "\x1b[5"},
		{"\x1bO", nil, "\x1bO"},
		// An unknown key means nothing, least of all its characters.
		{"\x1b[1;5q", []watchview.Key{watchview.None}, ""},
		{"\x1bOq", []watchview.Key{watchview.None}, ""},
		{"\x1bq", []watchview.Key{watchview.None}, ""},
		{"\x1b\x1b[A", []watchview.Key{watchview.None, watchview.Up}, ""},
		{"x", []watchview.Key{watchview.None}, ""},
		{"\x1b[" + strings.Repeat("1", 100), nil, ""}, // is given up
	} {
		keys, rest := watchview.Decode([]byte(tc.typed))
		if !slices.Equal(keys, tc.keys) || string(rest) != tc.rest {
			t.Errorf("%q gives %v and %q, want %v and %q", tc.typed, keys, rest, tc.keys, tc.rest)
		}
	}
}

// A line shows nothing that the terminal would obey, wherever its text is from: a record's layout used to get through.
func TestLineIsPrintable(t *testing.T) {
	t.Parallel()
	line := watchview.Line{{Text: "layout "}, {Text: "\x1b]0;owned\a\u009b2J\x7f\u202e\r\n", Style: watchview.Bad}}
	if got, want := line.Encode(200, false), `layout "\x1b]0;owned\a\u009b2J\x7f\u202e\r\n"`; got != want {
		t.Errorf("shown as %q, want %q", got, want)
	}
}
