package repo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/leasehold/leasehold"

// A rule says what the packages that match pkg may import. In all patterns a
// package of this module is written without the module's path, the root as ".".
// "x/..." is x and everything below it, "std" is the standard library.
type rule struct {
	pkg string
	may []string
	not []string // exceptions to may
}

// rules are the whole of who may import what, outside of tests. The first that
// matches a package is its rule; a package that none matches breaks the rules.
// Nothing but commands may be a command. Shipped packages import nothing that serves
// tests only (internal/leasetest, internal/servers and others).
var rules = []rule{
	{
		// Same input, same output: nothing that blocks or tells the time. The
		// linter denies the functions of package time that do.
		pkg: "internal/protocol",
		may: []string{"std", "internal/record"},
		not: []string{"context", "crypto/rand", "log/...", "math/rand/...", "net/...", "os/...", "runtime/...", "sync/...", "syscall/...", "testing/..."},
	},
	{
		pkg: "internal/protocol/candidate", // the same for locks
		may: []string{"std", "internal/protocol", "internal/record"},
		not: []string{"context", "crypto/rand", "log/...", "math/rand/...", "net/...", "os/...", "runtime/...", "sync/...", "syscall/...", "testing/..."},
	},
	{
		pkg: "internal/protocol/queue", // and for semaphores
		may: []string{"std", "internal/protocol", "internal/record"},
		not: []string{"context", "crypto/rand", "log/...", "math/rand/...", "net/...", "os/...", "runtime/...", "sync/...", "syscall/...", "testing/..."},
	},
	{pkg: "internal/protocol/session", may: []string{"std", "internal/record"}, not: []string{"context", "log/...", "math/rand/...", "net/...", "os/...", "runtime/...", "sync/...", "testing/..."}},
	{pkg: "internal/protocol/scenario", may: []string{"std"}}, // plays the scenarios of both
	{pkg: "internal/register", may: []string{"std"}, not: []string{"context", "crypto/rand", "log/...", "math/rand/...", "net/...", "os/...", "runtime/...", "sync/...", "syscall/...", "testing/..."}},
	{pkg: "internal/record", may: []string{"std"}, not: []string{"context", "crypto/rand", "math/rand/...", "net/...", "os/...", "runtime/...", "sync/...", "testing/..."}},
	{pkg: "internal/clock", may: []string{"std", "golang.org/x/sys/..."}},
	{
		// A program that only holds locks does not link it: the root does not import it.
		pkg: "admin",
		may: []string{"std", ".", "store", "internal/engine", "internal/layout", "internal/lock", "internal/protocol", "internal/protocol/candidate", "internal/protocol/queue", "internal/record"},
		not: []string{"net/...", "os/...", "testing/..."},
	},
	{pkg: "internal/lock", may: []string{"std", "locktrace", "store", "internal/clock", "internal/engine", "internal/protocol", "internal/protocol/candidate", "internal/protocol/queue"}, not: []string{"net/...", "os/...", "testing/..."}},
	{pkg: "internal/turn", may: []string{"std", "."}, not: []string{"net/...", "os/...", "testing/..."}}, // for adapters, which are modules of their own
	{pkg: "internal/cost", may: []string{"std", ".", "semaphore", "store", "store/quorumstore", "internal/lock", "internal/protocol", "internal/protocol/candidate", "internal/protocol/queue", "internal/record"}},
	{
		// The clock, the goroutines and the random numbers are those of Process; what
		// drives the candidates has no other (see the linter's rules).
		pkg: "internal/engine",
		may: []string{"std", "store", "internal/clock", "internal/layout", "internal/protocol", "internal/protocol/candidate", "internal/protocol/session", "internal/protocol/queue", "internal/record"},
		not: []string{"net/...", "os/...", "testing/..."},
	},
	{pkg: "internal/layout", may: []string{"std", "store", "internal/protocol", "internal/protocol/candidate", "internal/protocol/queue", "internal/record"}},
	{pkg: "internal/guardian", may: []string{"std", "internal/clock", "golang.org/x/sys/...", "golang.org/x/term"}},
	{pkg: "internal/guardian/early", may: []string{"std", "internal/guardian"}},
	{pkg: "internal/leasetest", may: []string{"std", ".", "locktrace", "multilock", "store", "store/faultstore", "internal/clock", "internal/layout", "internal/record", "internal/testenv"}},
	{pkg: "internal/promtext", may: []string{"std"}, not: []string{"net/...", "os/...", "testing/..."}},
	{pkg: "internal/plain", may: []string{"std"}, not: []string{"net/...", "os/...", "testing/..."}},
	{pkg: "internal/openfiles", may: []string{"std"}, not: []string{"net/...", "os/...", "testing/..."}},
	{pkg: "internal/localhttp", may: []string{"std", "internal/openfiles", "internal/reread", "golang.org/x/sys/..."}, not: []string{"testing/..."}},
	{pkg: "internal/reread", may: []string{"std"}, not: []string{"testing/..."}},
	{pkg: "internal/sdnotify", may: []string{"std"}, not: []string{"os/...", "testing/..."}},
	{pkg: "internal/servers", may: []string{"std", "github.com/aws/...", "github.com/Azure/...", "github.com/gofrs/flock", "github.com/johannesboyne/gofakes3/...", "golang.org/x/sys/..."}},
	{pkg: "internal/adaptertest", may: []string{"std", "internal/servers", "store", "store/filestore", "store/memstore", "store/s3store", "github.com/aws/..."}},
	{pkg: "internal/conformance", may: []string{"std", ".", "store", "internal/clock", "internal/protocol", "internal/record"}, not: []string{"testing/..."}},
	{pkg: "internal/pipenet", may: []string{"std"}},
	{pkg: "internal/servetest", may: []string{"std", "serve", "store", "internal/localhttp"}},
	{pkg: "internal/doctest", may: []string{"std"}, not: []string{"testing/..."}},
	{
		pkg: "internal/clitest",
		may: []string{"std", ".", "internal/layout", "internal/leasetest", "internal/record", "internal/servers", "internal/testenv", "internal/watchview", "peer", "github.com/rogpeppe/go-internal/testscript", "golang.org/x/sys/..."},
	},
	{pkg: "internal/brokenstore", may: []string{"std", "store", "store/memstore", "internal/testenv"}},
	{pkg: "internal/repo", may: []string{"std"}}, // tests only
	{pkg: "internal/testenv", may: []string{"std"}},
	{pkg: "internal/stores", may: []string{"std", "store/probe"}},
	{
		// Events in, lines out: the device is another package's.
		pkg: "internal/watchview",
		may: []string{"std", "internal/plain", ".", "github.com/clipperhouse/displaywidth"},
		not: []string{"context", "net/...", "os/...", "sync/...", "syscall/...", "testing/..."},
	},
	{pkg: "internal/lockjson", may: []string{"std", ".", "admin"}, not: []string{"net/...", "os/...", "testing/..."}},
	{pkg: "internal/manpage", may: []string{"std", "github.com/spf13/..."}, not: []string{"net/...", "os/...", "testing/..."}},
	{pkg: "internal/tty", may: []string{"std", "golang.org/x/sys/...", "golang.org/x/term"}},

	{pkg: "internal/linear", may: []string{"std", "github.com/anishathalye/porcupine"}},
	{pkg: "internal/fencecheck", may: []string{"std", ".", "fence/...", "store", "store/faultstore", "store/memstore"}},
	{
		pkg: "internal/fencecheck/histories",
		may: []string{
			"std", "fence", "internal/fencecheck", "internal/linear",
			"store", "store/faultstore", "github.com/anishathalye/porcupine",
		},
	},
	{pkg: "internal/fencetest", may: []string{"std", ".", "fence", "store/storeurl"}},

	// The module of the proofs.
	{
		pkg: "proof/sim",
		may: []string{
			"std", "store", "internal/engine", "internal/layout", "internal/protocol", "internal/protocol/candidate", "internal/protocol/queue", "internal/record", "internal/register",
		},
	},
	{pkg: "proof/...", may: []string{"std"}},

	{pkg: "store", may: []string{"std"}},
	{pkg: "store/storetest", may: []string{"std", "store", "store/internal/together"}},
	{pkg: "store/probe", may: []string{"std", "store", "store/internal/together"}, not: []string{"testing/..."}},
	{pkg: "store/internal/together", may: []string{"std"}},
	{pkg: "store/internal/exchange", may: []string{"std", "store"}},
	{pkg: "store/internal/awsidentity", may: []string{"std", "store", "github.com/aws/..."}},
	{pkg: "store/internal/wiretest", may: []string{"std", "store", "store/storetest", "internal/testenv"}},
	{pkg: "store/faultstore", may: []string{"std", "store"}},
	{pkg: "store/memstore", may: []string{"std", "store"}},
	{pkg: "store/filestore", may: []string{"std", "store", "github.com/gofrs/flock", "golang.org/x/sys/..."}},
	{pkg: "store/azstore", may: []string{"std", "store", "store/internal/exchange", "github.com/Azure/..."}},
	{pkg: "store/s3store", may: []string{"std", "store", "store/internal/exchange", "store/internal/awsidentity", "github.com/aws/..."}},
	{pkg: "store/quorumstore", may: []string{"std", "store", "internal/register"}, not: []string{"net/http/...", "testing/..."}}, // large bodies wait in a file
	{pkg: "store/gcsstore", may: []string{"std", "store", "store/internal/exchange"}},
	{
		pkg: "store/storeurl",
		may: []string{
			"std", "store", "store/memstore", "store/filestore", "store/s3store", "store/gcsstore", "store/azstore", "store/quorumstore",
			"store/internal/exchange", "store/internal/awsidentity",
			"github.com/aws/...", "github.com/Azure/...", "golang.org/x/oauth2/...", "cloud.google.com/go/compute/metadata",
		},
	},

	{pkg: "locktrace", may: []string{"std"}},
	{pkg: ".", may: []string{"std", "locktrace", "store", "internal/clock", "internal/engine", "internal/layout", "internal/lock", "internal/protocol", "internal/protocol/candidate", "internal/protocol/session", "internal/record"}},
	{pkg: "fence", may: []string{"std", ".", "store", "fence/internal/request"}},
	{pkg: "fence/internal/request", may: []string{"std", "store", "internal/protocol"}},
	{pkg: "fence/fencelog", may: []string{"std", ".", "fence", "store", "fence/internal/request"}},
	{pkg: "fence/fencehttp", may: []string{"std", "fence"}},
	{pkg: "fence/fencesql", may: []string{"std", ".", "fence"}},
	{pkg: "semaphore", may: []string{"std", ".", "locktrace", "store", "internal/engine", "internal/layout", "internal/lock", "internal/protocol", "internal/protocol/queue", "internal/record"}},
	{pkg: "metrics", may: []string{"std", ".", "locktrace", "store", "internal/promtext", "internal/protocol"}, not: []string{"os/...", "testing/..."}},
	{pkg: "multilock", may: []string{"std", ".", "internal/engine", "internal/lock"}, not: []string{"net/...", "os/...", "testing/..."}},
	{pkg: "detached", may: []string{"std", ".", "store", "internal/layout", "internal/lock", "internal/protocol", "internal/protocol/candidate", "internal/record"}, not: []string{"net/...", "os/...", "testing/..."}},
	{pkg: "serve/terraform", may: []string{"std", ".", "detached", "locktrace", "admin", "fence", "store"}, not: []string{"os/...", "testing/..."}},
	{pkg: "peer", may: []string{"std", ".", "semaphore", "store", "internal/lock", "internal/openfiles"}},
	{pkg: "shard", may: []string{"std", ".", "locktrace", "admin", "store", "internal/protocol"}},
	{
		// A handler: who may ask it is decided by internal/localhttp, in the command.
		pkg: "serve",
		may: []string{
			"std", ".", "admin", "locktrace", "metrics", "semaphore", "store", "internal/clock", "internal/cost", "internal/lockjson",
			"internal/promtext", "internal/protocol", "internal/watchview",
		},
		not: []string{"testing/..."},
	},
	{pkg: "s3lect", may: []string{"std", ".", "locktrace", "peer", "store", "store/filestore", "store/storeurl", "internal/protocol", "internal/protocol/candidate"}},

	// Users copy the examples, so these import nothing that users cannot.
	{pkg: "examples/...", may: []string{"std", ".", "locktrace", "admin", "fence/...", "peer", "s3lect", "shard", "store/..."}},
	{
		pkg: "cmd/...",
		may: []string{
			"std", ".", "admin", "detached", "fence/...", "locktrace", "peer", "semaphore", "serve/...", "shard", "store/...", "internal/...",
			"github.com/spf13/...", "github.com/gofrs/flock", "golang.org/x/sys/...", "golang.org/x/term",
			"github.com/johannesboyne/gofakes3/...", // the server of the demo
		},
		not: []string{"internal/fencecheck/...", "internal/fencetest", "internal/linear", "internal/leasetest", "internal/adaptertest", "internal/clitest", "internal/pipenet", "internal/servers", "internal/servetest", "internal/stores", "internal/testenv"},
	},
}

// rootMay is what may be linked into a program that imports the root package
// and nothing else of ours, directly or not.
var rootMay = []string{"std", ".", "locktrace", "store", "internal/clock", "internal/engine", "internal/layout", "internal/lock", "internal/protocol", "internal/protocol/candidate", "internal/protocol/session", "internal/protocol/queue", "internal/record", "golang.org/x/sys/..."}

// A listing is what go list says of one package.
type listing struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

func TestImports(t *testing.T) {
	t.Parallel()
	walk(t)
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			t.Parallel()
			packages := list(t, goos, ".")
			maps.Copy(packages, list(t, goos, "proof"))
			if packages[module+"/store"].ImportPath == "" {
				t.Fatal("go list does not show package store")
			}
			all := slices.Concat(direct(packages), linked(packages), shipped(packages))
			if goos == "linux" { // some packages are for tests there only
				all = append(all, dead(packages)...)
			}
			for _, broken := range all {
				t.Error(broken)
			}
		})
	}
}

// walk opens every directory of the module. The go command does not see what go
// list reads: without it a cached success would outlive a new import.
func walk(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(path) > 1 && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// list runs go list over the module in dir and all that it depends on.
func list(t *testing.T, goos, dir string) map[string]listing {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	packages := make(map[string]listing)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listing
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// direct checks the imports of every package of this module against its rule.
func direct(packages map[string]listing) (broken []string) {
	for _, path := range slices.Sorted(maps.Keys(packages)) {
		name, ours := within(path)
		if !ours {
			continue
		}
		i := slices.IndexFunc(rules, func(r rule) bool { return matches(r.pkg, name) })
		if i < 0 {
			broken = append(broken, fmt.Sprintf("%s has no rule: add a row to rules in internal/repo/imports_test.go", path))
			continue
		}
		for _, imp := range packages[path].Imports {
			if !allows(rules[i].may, packages[imp], imp) || allows(rules[i].not, packages[imp], imp) {
				broken = append(broken, fmt.Sprintf("%s must not import %s", path, imp))
			}
		}
	}
	return broken
}

// dead finds rules that no package of this module needs.
func dead(packages map[string]listing) (broken []string) {
	needed := map[int]bool{}
	for path := range packages {
		if name, ours := within(path); ours {
			needed[slices.IndexFunc(rules, func(r rule) bool { return matches(r.pkg, name) })] = true
		}
	}
	for i, r := range rules {
		if !needed[i] {
			broken = append(broken, fmt.Sprintf("no package needs the rule for %s: another comes first, or there is none", r.pkg))
		}
	}
	return broken
}

// shipped checks that nothing in the command is meant for tests.
func shipped(packages map[string]listing) (broken []string) {
	const command = module + "/cmd/leasehold"
	seen := map[string]bool{command: true}
	for queue := []string{command}; len(queue) > 0; queue = queue[1:] {
		for _, imp := range packages[queue[0]].Imports {
			if matches("testing/...", imp) {
				broken = append(broken, fmt.Sprintf("%s must not link %s, which %s imports", command, imp, queue[0]))
			} else if !seen[imp] {
				seen[imp] = true
				queue = append(queue, imp)
			}
		}
	}
	return broken
}

// linked checks what the root package brings with it into a program.
func linked(packages map[string]listing) (broken []string) {
	seen := map[string]bool{module: true}
	for queue := []string{module}; len(queue) > 0; queue = queue[1:] {
		for _, imp := range packages[queue[0]].Imports {
			if seen[imp] || packages[imp].Standard {
				continue
			}
			seen[imp] = true
			if allows(rootMay, packages[imp], imp) {
				queue = append(queue, imp)
			} else {
				broken = append(broken, fmt.Sprintf("%s must not link %s, which %s imports", module, imp, queue[0]))
			}
		}
	}
	return broken
}

// allows reports whether one of the patterns matches the import.
func allows(patterns []string, p listing, imp string) bool {
	name, _ := within(imp)
	for _, pattern := range patterns {
		if pattern == "std" && p.Standard || matches(pattern, name) {
			return true
		}
	}
	return false
}

// within gives the name of a package as the rules write it, and whether it is
// one of ours.
func within(path string) (name string, ours bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func matches(pattern, name string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == root || strings.HasPrefix(name, root+"/")
	}
	return name == pattern
}

// A check that never fires is worth nothing: each of these must.
func TestImportsAreRefused(t *testing.T) {
	t.Parallel()
	std := []string{"context", "fmt", "log/slog", "net/http", "os", "sync", "sync/atomic", "time"}
	for _, tc := range []struct {
		pkg, imp string
		ok       bool
	}{
		{"/internal/protocol", "fmt", true},
		{"/internal/protocol", "time", true},
		{"/internal/protocol", "context", false},
		{"/internal/protocol", "net/http", false},
		{"/internal/protocol", "os", false},
		{"/internal/protocol", "sync/atomic", false},
		{"/internal/protocol", "log/slog", false},
		{"/internal/protocol", module + "/store", false},
		{"/internal/protocol", module + "/internal/clock", false},
		{"/internal/clock", "golang.org/x/sys/unix", true},
		{"/internal/engine", module + "/internal/protocol", true},
		{"/internal/engine", module, false},
		{"/internal/engine", "net/http", false},
		{"/proof/sim", module + "/internal/engine", true},
		{"/proof/sim", module, false},
		{"/store", "fmt", true},
		{"/store", "golang.org/x/sys/unix", false},
		{"/store", module + "/store/memstore", false},
		{"/store/s3store", "github.com/aws/aws-sdk-go-v2/service/s3", true},
		{"/store/s3store", module, false},
		{"/store/s3store", module + "/store/memstore", false},
		{"/store/memstore", "github.com/aws/aws-sdk-go-v2/service/s3", false},
		{"/store/gcsstore", "net/http", true},
		{"/store/gcsstore", "github.com/aws/aws-sdk-go-v2/service/s3", false},
		{"/store/storeurl", module + "/store/s3store", true},
		{"/store/storeurl", "golang.org/x/oauth2/google", true},
		{"/store/storeurl", "cloud.google.com/go/storage", false},
		{"/store/storeurl", module, false},
		{"/store/gcsstore", "golang.org/x/oauth2", false},
		{"", module + "/internal/protocol", true},
		{"", module + "/admin", false},
		{"/admin", module, true},
		{"/admin", module + "/internal/engine", true},
		{"/admin", module + "/internal/clock", false},
		{"/admin", module + "/store/memstore", false},
		{"", "github.com/aws/aws-sdk-go-v2/aws", false},
		{"", module + "/store/s3store", false},
		{"", module + "/internal/servers", false},
		{"/fence", module, true},
		{"/fence", module + "/internal/protocol", false},
		{"/fence", module + "/cmd/leasehold", false},
		{"/cmd/leasehold", module + "/store/storeurl", true},
		{"/cmd/leasehold", module + "/internal/servers", false},
		{"/cmd/leasehold", module + "/cmd/other", false},
		{"/examples/contention", module + "/store/faultstore", true},
		{"/examples/contention", module + "/internal/servers", false},
		{"/examples/contention", module + "/internal/protocol", false},
		{"/unheard/of", "fmt", false},
	} {
		packages := map[string]listing{module + tc.pkg: {ImportPath: module + tc.pkg, Imports: []string{tc.imp}}}
		for _, name := range std {
			packages[name] = listing{ImportPath: name, Standard: true}
		}
		if broken := direct(packages); (len(broken) == 0) != tc.ok {
			t.Errorf("%s imports %s: allowed %t, want %t %q", module+tc.pkg, tc.imp, !tc.ok, tc.ok, broken)
		}
	}
}

func TestDeadRules(t *testing.T) {
	t.Parallel()
	if broken := dead(map[string]listing{module + "/store": {}}); len(broken) != len(rules)-1 {
		t.Errorf("of %d rules, of which one is needed, these are dead: %q", len(rules), broken)
	}
}

func TestShippedIsRefused(t *testing.T) {
	t.Parallel()
	packages := map[string]listing{
		module + "/cmd/leasehold": {Imports: []string{"fmt", module + "/store"}},
		module + "/store":         {Imports: []string{"fmt"}},
		"fmt":                     {Standard: true},
	}
	if broken := shipped(packages); len(broken) > 0 {
		t.Errorf("refused what is allowed: %q", broken)
	}
	packages[module+"/store"] = listing{Imports: []string{"testing/iotest"}}
	want := []string{module + "/cmd/leasehold must not link testing/iotest, which " + module + "/store imports"}
	if broken := shipped(packages); !slices.Equal(broken, want) {
		t.Errorf("%q, want %q", broken, want)
	}
}

func TestLinkedIsRefused(t *testing.T) {
	t.Parallel()
	const sdk = "github.com/aws/aws-sdk-go-v2/aws"
	packages := map[string]listing{
		module:                     {Imports: []string{"fmt", module + "/internal/clock", module + "/store"}},
		module + "/internal/clock": {Imports: []string{"golang.org/x/sys/unix"}},
		module + "/store":          {Imports: []string{"fmt"}},
		"fmt":                      {Standard: true},
	}
	if broken := linked(packages); len(broken) > 0 {
		t.Errorf("refused what is allowed: %q", broken)
	}
	packages[module+"/store"] = listing{Imports: []string{sdk}}
	want := []string{module + " must not link " + sdk + ", which " + module + "/store imports"}
	if broken := linked(packages); !slices.Equal(broken, want) {
		t.Errorf("got %q, want %q", broken, want)
	}
}
