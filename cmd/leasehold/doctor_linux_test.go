package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/probe"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// TestDoctorExitCodes: each finding of a good store is made bad alone. Then its line says
// BAD where the use asked for rests on it, the exit code is 78, and nowhere else either.
func TestDoctorExitCodes(t *testing.T) {
	t.Parallel()
	a := &app{}
	var good probe.Report
	synctest.Test(t, func(t *testing.T) {
		r, err := probe.Run(t.Context(), memstore.New(), &probe.Options{Races: 5})
		if err != nil {
			t.Fatal(err)
		}
		good = *r
	})
	ruled := map[string]bool{}
	for i := range good.Findings {
		r := good
		r.Findings = slices.Clone(good.Findings)
		r.Findings[i].Result = probe.Bad
		against := r.Findings[i].Against()
		if len(against) == 0 {
			t.Errorf("%q is BAD, and nothing follows", r.Findings[i].Name)
		}
		for _, use := range probe.Uses() {
			d := &diagnosis{app: a, use: use}
			err := d.outcome(&r, nil)
			bad := strings.HasPrefix(d.finding(r.Findings[i]), "BAD ")
			if want := slices.Contains(against, use); (err != nil) != want || bad != want || want && codeOf(err) != exitUnsafe {
				t.Errorf("%q is bad: for %s it prints %q and ends with %v", r.Findings[i].Name, use, d.finding(r.Findings[i]), err)
			}
			ruled[use] = ruled[use] || err != nil
		}
	}
	for _, use := range probe.Uses() {
		if !ruled[use] {
			t.Errorf("no finding rules out %s", use)
		}
	}
}

// A price stands where requests have one, and nowhere else. A directory was priced as S3.
func TestDoctorPrices(t *testing.T) {
	for url, want := range map[string]string{
		"file:///locks":                   "",
		"mem://":                          "",
		"s3://bucket":                     "s3",
		"s3://bucket/prefix":              "s3",
		"s3://bucket--use1-az4--x-s3":     "s3-express",
		"s3://b?endpoint=http://[::1]:90": "",
		"s3://b?endpoint=https%3A%2F%2Fs3.eu-central-1.amazonaws.com": "s3",
		"mem://?endpoint=https%3A%2F%2Fs3.amazonaws.com":              "",
		"s3://b?endpoint=https%3A%2F%2Fx.r2.cloudflarestorage.com":    "r2",
		"s3://b?endpoint=https%3A%2F%2Fstorage.googleapis.com":        "gcs",
		"s3://b?endpoint=https%3A%2F%2Fnotstorage.googleapis.com":     "",
		"s3://b?endpoint=https%3A%2F%2Famazonaws.com.example":         "",
		"gs://bucket/prefix":           "gcs",
		"s3://%zz":                     "",
		"s3://b?endpoint=http://%25zz": "",
		"gs://bucket--x-s3":            "gcs",
		"s3://bucket--x-s3?endpoint=http://127.0.0.1:9":          "",
		"gs://bucket?endpoint=http://127.0.0.1:9":                "",
		"azblob://container?account=acct":                        "azure",
		"azblob://c?endpoint=http://127.0.0.1:9/acct":            "",
		"azblob://c?endpoint=https://a.blob.core.windows.net":    "azure",
		"azblob://c?endpoint=https://blob.core.windows.net.evil": "",
	} {
		got := ""
		if price := priceAt(url); price != nil {
			got = price.Name
		}
		if got != want {
			t.Errorf("%s: the price of %q, want %q", url, got, want)
		}
	}
}

// TestDoctorTellsCost: doctor prints the maximum cost before it sends anything. It fails if it cannot write its report.
func TestDoctorTellsCost(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var said strings.Builder
	if code := exec(over, []string{"doctor", "--races", "1", "s3://bucket"}, &quorumDiagnosis{full: "Verdict"}, &said); code != exitInternal || !strings.Contains(said.String(), "it is full") || !regexp.MustCompile(`^leasehold: s3://bucket: at most \d+ requests \(where past versions are kept, \d+ more to delete those\), and \d+ MB in bodies, for less than \$0\.0[1-9] at the list prices of S3 Standard, us-east-1\n`).MatchString(said.String()) {
		t.Errorf("it ends with %d, and says %s", code, &said)
	}
}

// A clinging store refuses to delete the first object that it is asked to.
type clinging struct {
	*memstore.Store
	kept string
}

func (s *clinging) Delete(ctx context.Context, key string) error {
	if _, err := s.Get(ctx, key, ""); err == nil && (s.kept == "" || s.kept == key) {
		s.kept = key
		return &store.Error{Op: "delete", Key: key, Kind: store.ErrDenied}
	}
	return s.Store.Delete(ctx, key)
}

// TestDoctorTellsWhatIsLeft: doctor reports a single object that it could not remove.
func TestDoctorTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		d := &diagnosis{app: &app{stdout: io.Discard, console: console{w: &said}}, races: 1, largest: 1 << 16, use: "object"}
		report, err := d.probe(t.Context(), &clinging{Store: memstore.New()}, "", nil)
		if report == nil || report.Left != 1 || !strings.HasSuffix(said.String(), "leasehold: 1 scratch object under leasehold-probe-*/ could not be removed\n") {
			t.Errorf("%v, and it says %s", err, &said)
		}
	})
}

// After an interrupt nothing is claimed that was not found, and the exit code is that of
// every interrupted command. It said NO of what it had not tried.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	if clitest.UnderTest != leasetest.Object {
		t.Skip("the same in every layout: it is about stores")
	}
	cmd := clitest.Command(t, "", "doctor", "--races", "1000000", "file://"+t.TempDir())
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var stdout strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		stdout.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "ok    update after a delete") {
			if err = cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	failed, ok := errors.AsType[*osexec.ExitError](err)
	if !ok || failed.ExitCode() != exitSignal+int(syscall.SIGINT) {
		t.Errorf("it ended with %v", err)
	}
	_, verdict, _ := strings.Cut(stdout.String(), "\nVerdict on ")
	for _, use := range probe.Uses() {
		if !regexp.MustCompile(`\n  ` + regexp.QuoteMeta(use) + ` +not tried\n`).MatchString(verdict) {
			t.Errorf("of %s it says:\n%s", use, stdout.String())
		}
	}
	if !strings.HasSuffix(said.String(), "leasehold: interrupted: the report is not complete\n") || !strings.Contains(said.String(), "leasehold: cleaning up\n") {
		t.Errorf("it says %s", &said)
	}
	if strings.Contains(stdout.String(), "NO") || strings.Contains(stdout.String(), "BAD") {
		t.Error(stdout.String())
	}
}

// TestDoctorOfRedirects: an endpoint that redirects to itself gets a few requests, and no more than were
// announced. It got 1.2 million.
func TestDoctorOfRedirects(t *testing.T) {
	t.Parallel()
	if clitest.UnderTest != leasetest.Object {
		t.Skip("the same in every layout: it is about stores")
	}
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received.Add(1)
		http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	cmd := clitest.Command(t, "", "doctor", "s3://b/locks?region=x&endpoint="+server.URL)
	cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
	var console strings.Builder
	cmd.Stderr = &console
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitUnavailable || received.Load() > 100 {
		t.Errorf("%d requests, %v: %s", received.Load(), err, &console)
	}
	t.Logf("figures: %d requests; %s", received.Load(), &console)
}

// TestDoctorShowsProgress: on a terminal a line says how far the tests are, and is gone where a finding is. With --output json
// there are neither lines nor findings before the report.
func TestDoctorShowsProgress(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"text": "\r\x1b[Kleasehold: races: 3 of at most 9 requests\r\x1b[K-\r\x1b[K\r\x1b[Kleasehold: end",
		"json": "end",
	} {
		screen, line := clitest.Terminal(t)
		var out strings.Builder
		a := &app{stdout: &out, console: console{w: line}}
		a.output = output
		if err := a.console.begin(&a.flags); err != nil {
			t.Fatal(err)
		}
		d := &diagnosis{app: a, races: 7, largest: 9, use: "object"}
		opts := d.options(func(context.Context) (store.Store, error) { return nil, store.ErrDenied })
		if _, err := opts.Open(t.Context()); !errors.Is(err, store.ErrDenied) {
			t.Errorf("a store is opened once more: %v", err)
		}
		if opts.Races != 7 || opts.LargestBody != 9 || (opts.OnProgress != nil) != (output == "text") || (opts.OnFinding != nil) != (output == "text") {
			t.Errorf("%s: %+v", output, opts)
		}
		if output == "text" {
			opts.OnProgress(probe.Progress{Doing: "races", Requests: 3, Limit: 9})
			opts.OnFinding(probe.Finding{Name: "races", Result: probe.OK})
			if _, err := line.WriteString("-"); err != nil {
				t.Fatal(err)
			}
			opts.OnProgress(probe.Progress{})
			d.console.show("")
			d.console.show("leasehold: end")
			if out.String() != "ok    races\n" {
				t.Errorf("it writes %q", &out)
			}
		} else if _, err := line.WriteString("end"); err != nil {
			t.Fatal(err)
		}
		var seen []byte
		for b := make([]byte, 1); !strings.HasSuffix(string(seen), "end"); {
			if _, err := screen.Read(b); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, b...)
		}
		want = strings.Replace(want, "-\r\x1b[K", "-\r\x1b[Kleasehold: : 0 of at most 0 requests\r\x1b[K", 1)
		if string(seen) != want {
			t.Errorf("%s: the terminal shows %q, want %q", output, seen, want)
		}
		_ = line.Close()
	}

	// An interrupted run leaves no objects.
	screen, line := clitest.Terminal(t)
	quiet := &app{console: console{w: line}}
	quiet.output, quiet.quiet = "text", true
	if err := quiet.console.begin(&quiet.flags); err != nil {
		t.Fatal(err)
	}
	if (&diagnosis{app: quiet}).options(nil).OnProgress != nil {
		t.Error("with --quiet too it shows how far it is")
	}
	shown := make(chan string)
	go func() {
		var seen strings.Builder
		for lines := bufio.NewReader(screen); !strings.HasSuffix(seen.String(), "end"); {
			b, err := lines.ReadByte()
			if err != nil {
				break
			}
			seen.WriteByte(b)
		}
		shown <- seen.String()
	}()
	synctest.Test(t, func(t *testing.T) {
		a := &app{stdout: io.Discard, console: console{w: line}}
		a.output = "text"
		if err := a.console.begin(&a.flags); err != nil {
			t.Fatal(err)
		}
		d := &diagnosis{app: a, races: 1, largest: 1 << 16, use: "object"}
		ctx, cancel := context.WithCancel(t.Context())
		puts := 0
		st := &memberStore{Store: memstore.New(), url: "s3://a", asked: func() {
			time.Sleep(time.Second) // so that the next request is shown
			if puts++; puts == 5 {
				cancel()
			}
		}}
		if _, err := d.probe(ctx, st, quorumstore.Scratch, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	})
	if _, err := line.WriteString("end"); err != nil {
		t.Fatal(err)
	}
	if seen := <-shown; !strings.Contains(seen, " requests\r\x1b[K") || !strings.HasSuffix(seen, "\r\x1b[Kend") {
		t.Errorf("the terminal shows %q", seen)
	}
}
