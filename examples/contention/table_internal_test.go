package main

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store/filestore"
)

var long = flag.Bool("long", false, "let 100 tasks compete, on all servers, and note which goals they miss; for a quarter of an hour, on a machine with nothing else to do")

// A place is where a competition is held, in a store that is new and empty.
type place struct {
	name      string
	processes []int
	open      func(t *testing.T) (url string, env []string)
}

func memory(*testing.T) (string, []string) { return "mem://contention", nil }

func directory(t *testing.T) (string, []string) {
	t.Helper()
	st, err := filestore.New(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return st.String(), nil
}

func bucket(srv *servers.Server) func(t *testing.T) (string, []string) {
	return func(t *testing.T) (string, []string) {
		t.Helper()
		return srv.URL(srv.Bucket(t)), srv.Env()
	}
}

// TestCompetitions: nobody overlaps, in any layout, in one process and in several, and
// what was measured is possible. With -long it makes the tables of docs/contention.md.
func TestCompetitions(t *testing.T) {
	tasks, hold := 10, 20*time.Millisecond
	var places []place
	if *long {
		tasks, hold = 100, 200*time.Millisecond
		many := []int{1, 10}
		places = []place{
			{"MinIO", many, bucket(servers.Start(t, "minio"))},
			{"versitygw", many, bucket(servers.Start(t, "versitygw"))},
			{"a directory", many, directory},
		}
	} else {
		places = []place{
			{"memory", []int{1}, memory},
			{"a directory", []int{3}, directory},
			{"gofakes3", []int{3}, bucket(servers.Start(t, "gofakes3"))},
		}
	}
	for _, p := range places {
		for _, processes := range p.processes {
			t.Run(fmt.Sprintf("%s, %d", p.name, processes), func(t *testing.T) {
				if !*long {
					t.Parallel()
				}
				p.compete(t, processes, tasks, hold)
			})
		}
	}
}

// compete runs every protocol and prints a table for the documentation.
func (p place) compete(t *testing.T, processes, tasks int, hold time.Duration) {
	t.Helper()
	args := []string{"--processes", strconv.Itoa(processes), "--tasks", strconv.Itoa(tasks), "--hold", hold.String()}
	var all []figures
	for _, layout := range slices.Concat(leasehold.Layouts, []leasehold.Layout{plainLoop}) {
		url, env := p.open(t)
		protocol := []string{"--store", url, "--layout", string(layout)}
		if layout == plainLoop {
			protocol = []string{"--store", url, "--" + plainLoop}
		}
		got := contend(t, env, append(protocol, args...)...)
		if len(got) != 1 || got[0].Protocol != string(layout) {
			t.Fatalf("figures of %+v, want those of %s", got, layout)
		}
		got[0].check(t, tasks, hold)
		all = append(all, got[0])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, processes: %d, hold: %v\n\n", p.name, processes, hold)
	b.WriteString("| | in use | GET | PUT | LIST | DELETE | requests | $ for 1,000 | tasks served |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range all {
		fmt.Fprintf(&b, "| `%s` | %.1f %% | %.2f | %.2f | %.2f | %.2f | %.2f | %.4f | %d of %d |\n",
			f.Protocol, f.InUse*100, f.Get, f.Put, f.List, f.Delete, f.Requests, f.Dollars*1000, f.Served, f.Tasks)
	}
	t.Log(b.String())
	if *long {
		goals(t, all)
	}
}

// goals notes what a layout misses of what the library is to reach. On a real server
// that is no failure: how long a write takes is not the library's.
func goals(t *testing.T, all []figures) map[string]string {
	t.Helper()
	missed := map[string]string{}
	loop := all[len(all)-1]
	for _, f := range all[:len(all)-1] {
		least, wrong := 0.80, ""
		switch {
		case f.Processes > 1 && f.Dollars >= loop.Dollars:
			wrong = fmt.Sprintf("$%.4f for 1,000, want less than $%.4f; ", f.Dollars*1000, loop.Dollars*1000)
		case f.Processes > 1:
		case f.Requests >= loop.Requests/10:
			least, wrong = 0.95, fmt.Sprintf("%.2f requests each, want less than a tenth of %.2f; ", f.Requests, loop.Requests)
		default:
			least = 0.95
		}
		if f.InUse < least {
			wrong += fmt.Sprintf("in use for %.1f %%, want %.0f; ", f.InUse*100, least*100)
		}
		if missed[f.Protocol] = wrong; wrong != "" {
			t.Logf("%s: %s", f.Protocol, strings.TrimSuffix(wrong, "; "))
		}
	}
	return missed
}

// check checks what must be true of every competition, however fast the machine.
func (f figures) check(t *testing.T, acquisitions int, hold time.Duration) {
	t.Helper()
	least := hold.Seconds() * float64(acquisitions)
	epochs := strings.HasPrefix(f.Protocol, "epochs")
	for what, wrong := range map[string]bool{
		"acquisitions":                   f.Acquisitions != acquisitions,
		"tasks that had the lock":        f.Served < 1 || f.Served > f.Tasks,
		"overlaps":                       f.Overlaps != 0,
		"time":                           f.Seconds < least,
		"share of the time in use":       f.InUse < least/f.Seconds || f.InUse > 1,
		"fewer than one write each":      f.Put < 1,
		"LISTs, which only epochs need":  (f.List > 0) != epochs,
		"DELETEs, which only markers do": f.Delete > 0 && (epochs || f.Protocol == string(leasehold.LayoutObject)),
		"sum of the requests":            math.Abs(f.Requests-(f.Get+f.Put+f.List+f.Delete)) > 1e-9,
		"price":                          math.Abs(f.Dollars*1e7-(50*(f.Put+f.List)+4*f.Get)) > 1e-6,
	} {
		if wrong {
			t.Errorf("%s: %+v", what, f)
		}
	}
}
