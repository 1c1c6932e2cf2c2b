package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/conformance"
)

// TestConformanceOutcome: the line of each case, the sum, the JSON, and the exit code, by which an implementation in another
// language is judged in its own CI.
func TestConformanceOutcome(t *testing.T) {
	t.Parallel()
	passed := conformance.Result{Case: "free-absent", About: "It takes a lock.", Passed: true, Seconds: 1.26}
	skipped := conformance.Result{Case: "takes-over", About: "It takes a lock over.", Skipped: "the store has no clock"}
	broken := conformance.Result{
		Case: "refused", About: "It writes nothing.", Seconds: 2,
		Failures: []conformance.Failure{
			{Rule: "F5", Sentence: "Whoever does not hold it writes nothing.", What: "it wrote \x1b[2J twice"},
			{What: "it did not end"},
		},
		Requests: []string{"PUT l 200\n  {\"format\": 1}\n", "GET l 200"},
		Said:     []string{"> acquire 0", "held \x07"},
	}
	for _, tc := range []struct {
		result conformance.Result
		want   string
	}{
		{passed, "pass  free-absent  (1.3 s)\n"},
		{skipped, "skip  takes-over: the store has no clock\n"},
		{broken, `FAIL  refused: It writes nothing.
      F5 of docs/format.md: Whoever does not hold it writes nothing.
      seen: "it wrote \x1b[2J twice"
      seen: it did not end
      requests:
        PUT l 200
                   {"format": 1}
        GET l 200
      said (> by the runner):
        > acquire 0
        "held \a"
`},
		{
			conformance.Result{Case: "refused", About: "It writes nothing.", Requests: []string{"GET l"}},
			"FAIL  refused: It writes nothing.\n      requests:\n        GET l\n",
		},
		{
			conformance.Result{Case: "refused", About: "It writes nothing.", Failures: []conformance.Failure{{What: "it did not start"}}},
			"FAIL  refused: It writes nothing.\n      seen: it did not start\n",
		},
	} {
		if got := resultText(tc.result); got != tc.want {
			t.Errorf("of %s it says\n%s\nwant\n%s", tc.result.Case, got, tc.want)
		}
	}

	for _, tc := range []struct {
		results []conformance.Result
		text    string
		sums    [3]int
		end     string
	}{
		{[]conformance.Result{passed, passed, skipped}, "\n2 passed, 0 failed, 1 not tried\n", [3]int{2, 0, 1}, ""},
		{[]conformance.Result{passed, broken, broken, skipped}, "\n1 passed, 2 failed, 1 not tried\n", [3]int{1, 2, 1}, "2 of 4 cases have failed"},
	} {
		for _, output := range []string{"text", "json"} {
			var out bytes.Buffer
			a := &app{stdout: &out}
			a.output = output
			err := (&conformanceRun{app: a}).outcome(tc.results)
			end, failed := errors.AsType[*exit](err)
			if failed != (tc.end != "") || failed && (end.code != 1 || end.err.Error() != tc.end) {
				t.Errorf("%d cases end with %v, want %q", len(tc.results), err, tc.end)
			}
			if output == "text" {
				if out.String() != tc.text {
					t.Errorf("%q, want %q", &out, tc.text)
				}
				continue
			}
			a.stdout = &quorumDiagnosis{full: "assed"}
			if err = (&conformanceRun{app: a}).outcome(tc.results); err == nil || !strings.Contains(err.Error(), "it is full") {
				t.Errorf("what cannot be written ends with %v", err)
			}
			var sum struct {
				Passed, Failed, Skipped int
				Cases                   []conformance.Result
			}
			if err := json.Unmarshal(out.Bytes(), &sum); err != nil || [3]int{sum.Passed, sum.Failed, sum.Skipped} != tc.sums || !reflect.DeepEqual(sum.Cases, tc.results) {
				t.Errorf("%v: %s, want %v and %+v", err, &out, tc.sums, tc.results)
			}
		}
	}
}

// TestConformanceStore: what the proxy and the program are told of the store is what its URL says.
func TestConformanceStore(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"s3://b?endpoint=http://127.0.0.1:9000":                      "http://127.0.0.1:9000 b  ",
		"s3://b/?endpoint=http://127.0.0.1:9000":                     "http://127.0.0.1:9000 b  ",
		"s3://b/p/q/?endpoint=https://h&region=eu-x&path_style=true": "https://h b p/q/ eu-x",
		"s3://b/p?endpoint=127.0.0.1:9000":                           "has no endpoint=",
		"s3://b/p?endpoint=nonsense":                                 "has no endpoint=",
		"s3://b/p":                                                   "has no endpoint=",
		"s3:///p?endpoint=http://h":                                  "is not the URL of a bucket",
		"gs://b/p?endpoint=http://h":                                 "is not the URL of a bucket",
		"s3://b\x00/p?endpoint=http://h":                             "--store: ",
		"s3://b?endpoint=http://h&path_style=false":                  "has path_style=false",
	} {
		endpoint, bucket, prefix, region, err := (&conformanceRun{store: url}).place()
		if err != nil {
			if end, is := errors.AsType[*exit](err); !is || end.code != exitUsage || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", url, err, want)
			}
			continue
		}
		if got := strings.Join([]string{endpoint.String(), bucket, prefix, region}, " "); got != want {
			t.Errorf("%q: %q, want %q", url, got, want)
		}
	}
}

// TestConformanceRun: a program that ends instead of answering fails a case, and the command says so with the exit code 1.
// The program is told where the store is.
func TestConformanceRun(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	server, err := startDemoServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said, out := &bytes.Buffer{}, &bytes.Buffer{}
	told := filepath.Join(t.TempDir(), "told")
	run := func(store string, flags ...string) int {
		said.Reset()
		out.Reset()
		args := append([]string{"conformance", "--run", "^free-absent$", "--store", store}, flags...)
		return exec(t.Context(), append(args, "--", "sh", "-c", `echo "$AWS_ACCESS_KEY_ID $CONFORMANCE_BUCKET $CONFORMANCE_PREFIX $AWS_REGION" >"$0"`, told), out, said)
	}
	at := "s3://" + demoBucket + "/p?endpoint=" + server.endpoint
	for _, region := range []struct{ url, variable, want string }{
		{"", "", "us-east-1"}, {"", "eu-variable", "eu-variable"}, {"eu-url", "", "eu-url"}, {"eu-url", "eu-variable", "eu-url"},
	} {
		t.Setenv("AWS_REGION", region.variable)
		store := at
		if region.url != "" {
			store += "&region=" + region.url
		}
		if code := run(store); code != 1 {
			t.Errorf("it ends with %d", code)
		}
		for _, want := range []string{"FAIL  free-absent: It takes a lock of which there is no object", "the process has ended", "\n0 passed, 1 failed, 0 not tried\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("it does not print %q:\n%s", want, out)
			}
		}
		if want := "leasehold: 1 of 1 cases have failed\n"; !strings.HasSuffix(said.String(), want) {
			t.Errorf("it says %q, want %q", said, want)
		}
		if text, err := os.ReadFile(told); err != nil || string(text) != "demo demo p/ "+region.want+"\n" {
			t.Errorf("the program is told %q, %v", text, err)
		}
		if n := strings.Count(out.String(), "passed"); n != 1 {
			t.Errorf("the sum is printed %d times:\n%s", n, out)
		}
	}
	t.Setenv("AWS_REGION", "")
	if code := run(at, "-o", "json", "--parallel", "1"); code != 1 || !json.Valid(out.Bytes()) {
		t.Errorf("it ends with %d and prints\n%s", code, out)
	}
	// Cases are tried one at a time, and with another TTL than the default.
	const program = `mkdir "$0" || echo two >"$0s"; echo ready 1 renews-itself; read line; echo "$line" >"$0r"; sleep 0.1; rmdir "$0"`
	busy := filepath.Join(t.TempDir(), "busy")
	args := []string{"conformance", "--parallel", "1", "--ttl", "7s", "--run", "^(free|acquire-answer)", "--store", at, "--", "sh", "-c", program, busy}
	if code := exec(t.Context(), args, out, said); code != 1 {
		t.Errorf("it ends with %d, and says %s", code, said)
	}
	if _, alone := os.Stat(busy + "s"); alone == nil {
		t.Error("two cases are tried at a time, and not one")
	}
	if text, err := os.ReadFile(busy + "r"); err != nil || !regexp.MustCompile(`^acquire \S+ 7000 \d+\n$`).Match(text) {
		t.Errorf("it is asked %q, %v", text, err)
	}
	if code := run("s3://" + demoBucket + "-none/p?endpoint=" + server.endpoint); code != exitUnavailable || out.Len() > 0 || !strings.Contains(said.String(), "the store cannot be written to: ") {
		t.Errorf("without a bucket it ends with %d, prints %q and says %q", code, out, said)
	}
}
