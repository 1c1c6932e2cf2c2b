package watchview_test

import (
	"strings"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/watchview"
)

// parse returns a semaphore: "a b! | c" has the holders a, and b who looks to be gone, and c waits. The ID of an
// entry is its holder's name.
func parse(words string) leasehold.Info {
	i := leasehold.Info{Key: "s", Layout: "table", Exists: true, Token: 7, Age: -1, Size: 3}
	into := &i.Holders
	for word := range strings.FieldsSeq(words) {
		if word == "|" {
			into = &i.Waiters
			continue
		}
		name, gone := strings.CutSuffix(word, "!")
		*into = append(*into, leasehold.Entry{ID: name, Holder: name, Weight: 1, Abandoned: gone})
	}
	i.Held = len(i.Holders) > 0
	return i
}

// A change of those who hold slots of a semaphore, or wait for some, is told; what stays the same is not.
func TestSemaphoreChange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ before, after, want string }{
		{"none", "", ""},
		{"none", "| c", ""},
		{"none", "a | c", "elected"},
		{"", "a", "elected"},
		{"a", "a", ""},
		{"a", "b", "changed"},
		{"a", "a b", "changed"},
		{"a b", "b", "changed"},
		{"a | b", "a", "changed"},
		{"a | b c", "a | c b", "changed"},
		{"a b", "a b!", "expired"},
		{"a b!", "a b!", ""},
		{"a b!", "a", "changed"},
		{"a", "", "resigned"},
		{"a", "| c", "resigned"},
		{"", "", ""},
	} {
		before := parse(tt.before)
		if tt.before == "none" {
			before = leasehold.Info{}
		}
		if got := watchview.SemaphoreChange(before, parse(tt.after)); got != tt.want {
			t.Errorf("%q and then %q: %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}

// Among the locks under a prefix a semaphore has its place, with its holders.
func TestSemaphoreUnderAPrefix(t *testing.T) {
	t.Parallel()
	of := func(words string) watchview.Row { return watchview.Row{Info: parse(words)} }
	snap := func(rows ...watchview.Row) *watchview.Snapshot { return &watchview.Snapshot{Rows: rows} }
	for _, tt := range []struct {
		before, after *watchview.Snapshot
		want          string
	}{
		{nil, snap(of("a")), "elected"},
		{nil, snap(of("")), ""},
		{snap(), snap(of("")), "appeared"},
		{snap(), snap(of("a")), "elected"},
		{snap(of("a")), snap(of("a | b")), "changed"},
		{snap(of("a")), snap(of("")), "resigned"},
		{snap(of("a")), snap(), "vanished"},
		{snap(of("a")), snap(watchview.Row{Info: leasehold.Info{Key: "s"}, Foreign: "garbage"}), "unreadable"},
		{snap(row(t, "s held 7 web")), snap(of("a")), "elected"},
	} {
		got := ""
		for _, c := range watchview.Diff(tt.before, *tt.after, false) {
			got += c.Kind
		}
		if got != tt.want {
			t.Errorf("%+v and then %+v: %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
	view := &watchview.Table{Name: "p/", Limit: 10}
	view.Take(watchview.Listed{Snapshot: *snap(of("a b c"))}, began)
	var shown []string
	for _, l := range view.Lines(began, 80, 20) {
		shown = append(shown, l.Text())
	}
	if text := strings.Join(shown, "\n"); !strings.Contains(text, "held   a and 2 more  7") || !strings.Contains(text, "table") {
		t.Errorf("it shows\n%s", text)
	}
}
