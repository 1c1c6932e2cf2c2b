package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/clitest"
)

// tags are the names of all fields of a type that is written as JSON.
func tags(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
			names = append(names, name)
		case f.Type.Kind() == reflect.Pointer:
			names = append(names, tags(f.Type.Elem())...)
		default:
			names = append(names, tags(f.Type)...)
		}
	}
	return names
}

// TestEventsStay: programs go by the names of events and of their fields. One that is renamed or removed
// breaks them, so it needs a line in CHANGELOG.md, and a change of testdata/events.txt by hand.
func TestEventsStay(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("testdata/events.txt")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	used := map[string]bool{}
	for _, k := range eventKinds {
		line := fmt.Sprintf("%s: %s | %s", k.name, k.always, k.sometimes)
		b.WriteString(strings.Join(fields(line), " ") + "\n")
		for _, f := range fields(k.always + " " + k.sometimes) {
			used[f] = true
		}
	}
	if got := b.String(); got != string(golden) {
		t.Errorf("the events are\n%s\nand testdata/events.txt has\n%s", got, golden)
	}
	// And what is documented is what is written.
	if got, want := slices.Sorted(slices.Values(tags(reflect.TypeFor[event]()))), slices.Sorted(maps.Keys(used)); !slices.Equal(got, want) {
		t.Errorf("an event has the fields %q, and the documented ones are %q", got, want)
	}
}

// TestEventsArePlayed: the scripts have the real command show each event, and each field that it says
// on stderr.
func TestEventsArePlayed(t *testing.T) {
	t.Parallel()
	var scripts []string
	for _, dir := range []string{"testdata", "../../proof/cli/testdata"} { // there those whose leases end
		found, err := filepath.Glob(dir + "/script/*.txtar")
		if err != nil || len(found) < 10 {
			t.Fatalf("%d scripts in %s, %v", len(found), dir, err)
		}
		scripts = append(scripts, found...)
	}
	played := map[string]bool{}
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^events \S+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
			for _, word := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ' ' || r == '+' }) {
				played[word] = true
			}
		}
	}
	for _, k := range eventKinds {
		if !played[string(k.name)] {
			t.Errorf("no script has the command show %q", k.name)
		}
		if k.of == "watch" {
			continue // see TestChangesAsEvents
		}
		for _, f := range fields(k.always + " " + k.sometimes) {
			if !played[f] && !slices.Contains(fields(said), f) {
				t.Errorf("no script has the command show the field %q", f)
			}
		}
	}
}

// TestChangesAsEvents: each change is an event, and has all that is known of the lock.
func TestChangesAsEvents(t *testing.T) {
	t.Parallel()
	now := time.Now()
	full := leasehold.Info{
		Exists: true, Held: true, Holder: "h", Address: "a", Session: "s", Meta: map[string]string{"k": "v"}, Token: 7, TTL: time.Second,
		AcquiredAt: now, RenewedAt: now, ExpiresAt: now, Age: time.Second, Abandoned: true, Version: "1", Layout: leasehold.LayoutEpochs, NoIfMatch: true,
		Term: 3, Rest: time.Second,
	}
	var names, states, has []string
	for kind := leasehold.Elected; kind <= leasehold.Unreadable; kind++ {
		c := leasehold.Change{Kind: kind, Info: full, Time: now}
		c.Info.Held = kind != leasehold.Resigned
		if kind == leasehold.Unreadable {
			c.Err = errors.New("it\nfails")
		}
		e := seenEvent(target{url: "file:///l"}, c)
		states = append(states, e.State)
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		name, found, err := clitest.Event(text)
		if err != nil {
			t.Error(err)
		}
		names, has = append(names, name), append(has, slices.Collect(maps.Keys(found))...)
	}
	if want := []string{"elected", "renewed", "resigned", "expired", "taken_over", "vanished", "unreadable"}; !slices.Equal(names, want) {
		t.Errorf("the events are %q, want %q", names, want)
	}
	if want := []string{"held", "held", "free", "held", "held", "absent", "unknown"}; !slices.Equal(states, want) {
		t.Errorf("the states are %q, want %q", states, want)
	}
	slices.Sort(has)
	want := slices.DeleteFunc(fields(seen+" cause "+seenToo), func(f string) bool { return f == "semaphore" })
	slices.Sort(want)
	if has = slices.Compact(has); !slices.Equal(has, want) {
		t.Errorf("they have %q, want %q", has, want)
	}
}

// TestSemaphoresAsEvents: what a semaphore has, in status, list and watch, are the fields that
// docs/inspect.md lists, and they stay.
func TestSemaphoresAsEvents(t *testing.T) {
	t.Parallel()
	entry := leasehold.Entry{Holder: "h", Session: "s", Weight: 2, Token: 7, Since: time.Now()}
	i := leasehold.Info{
		Key: "l", Layout: admin.LayoutTable, Exists: true, Held: true, Token: 7, Age: -1,
		Size: 3, Holders: []leasehold.Entry{entry}, Waiters: []leasehold.Entry{entry},
	}
	text, err := json.Marshal(seenAs(describe(target{url: "file:///l"}, i), eventChanged, time.Now(), nil))
	if err != nil {
		t.Fatal(err)
	}
	_, has, err := clitest.Event(text)
	if err != nil {
		t.Fatal(err)
	}
	var of struct {
		Holders, Waiters []map[string]any
	}
	var all map[string]any
	if err = errors.Join(json.Unmarshal(has["semaphore"], &of), json.Unmarshal(has["semaphore"], &all)); err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(maps.Keys(all))
	if len(of.Holders) == 1 && len(of.Waiters) == 1 {
		got = append(got, slices.Sorted(maps.Keys(of.Holders[0]))...)
	}
	if want := fields("holders size taken waiters abandoned holder session since token weight"); !slices.Equal(got, want) {
		t.Errorf("a semaphore has %q, want %q", got, want)
	}
	doc, err := os.ReadFile("../../docs/inspect.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Semaphores\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, f := range got {
		if !strings.Contains(section, "`"+f+"`") {
			t.Errorf("docs/inspect.md does not say what %q is", f)
		}
	}
}

// TestEventsAreDocumented: docs/events.md has the table of the code.
func TestEventsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Events\n")
	if !found {
		t.Fatal("there is no section Events")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var got, want []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	for _, k := range eventKinds {
		want = append(want, documented(k))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table is\n%s\nand should be\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// documented is the row of an event: of the fields those that only some have.
func documented(k eventKind) string {
	always := strings.TrimPrefix(strings.TrimPrefix(k.always, said), seen)
	quoted := func(list string) string {
		var names []string
		for _, f := range fields(list) {
			names = append(names, "`"+f+"`")
		}
		return strings.Join(names, ", ")
	}
	sometimes := quoted(k.sometimes)
	if k.of == "watch" {
		sometimes = "" // those of status
	}
	row := "|"
	for _, cell := range []string{"`" + string(k.name) + "`", k.of, k.means, quoted(always), sometimes} {
		row += strings.TrimSuffix(" "+cell, " ") + " |"
	}
	return row
}
