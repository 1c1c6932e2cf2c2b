package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var update = flag.Bool("update", false, "write the pictures of docs/serve.md")

// screenshots names the directory that all pictures are left in.
const screenshots = "LEASEHOLD_TEST_SCREENSHOTS"

// patience is how long a test waits for what the page is to show. It bounds a failure: no test waits it out otherwise.
const patience = 5 * time.Minute

// A chromium is a browser that runs until the end of the test.
type chromium struct{ ctx context.Context }

// launch starts a browser that reaches nothing but this machine, and ends it with the test.
func launch(t *testing.T) *chromium {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skip("no chromium here: there is no chromium or chromium-browser on PATH (Debian: apt-get install chromium)")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true),
	)
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // the sandbox is not for root
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("%s does not start: %v", program, err)
	}
	return &chromium{ctx}
}

// A tab is a page that is open, in a browser that knows nothing of the other tabs.
type tab struct {
	t    *testing.T
	ctx  context.Context
	site *site

	mu       sync.Mutex
	asked    []string // all that the browser has asked for
	wrong    []string // what it says that no page of ours may cause
	failures []string // answers of the server that were no success, and connections that failed
	mayFail  bool
}

// A view is how a tab is opened.
type view struct {
	dark, phone bool
	still       bool // the user wants no motion
	hash        string
}

// command is a command of the browser's protocol whose result does not matter.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// open opens the page of a site, and waits until it has seen something. When the test ends, the browser must have
// reported no violation of the policy, no error, and no request to anywhere else.
func (c *chromium) open(t *testing.T, s *site, v view) *tab {
	t.Helper()
	b := &tab{t: t, site: s}
	ctx, stop := chromedp.NewContext(c.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	t.Cleanup(stop)
	b.ctx = ctx
	scheme, motion := "light", "no-preference"
	if v.dark {
		scheme = "dark"
	}
	if v.still {
		motion = "reduce"
	}
	viewport := chromedp.EmulateViewport(1200, 760)
	if v.phone {
		viewport = chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	if err := chromedp.Do(ctx); err != nil { // it lives for as long as this context
		t.Fatal(err)
	}
	b.do(
		command(network.Enable, network.EnableParams{}), viewport,
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion},
		}}),
		command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `window.violations = [];
			document.addEventListener('securitypolicyviolation', (e) => violations.push(e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample));`}),
		chromedp.Navigate(s.url+"/ui/"+v.hash),
	)
	t.Cleanup(b.clean)
	b.waits("the first look", `seen !== null && document.body.dataset.state === 'live'`)
	return b
}

// hear takes in what the browser reports.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *network.EventLoadingFailed:
		if e.BlockedReason != "" {
			b.wrong = append(b.wrong, "blocked: "+string(e.BlockedReason))
		}
	case *runtime.EventConsoleAPICalled:
		var text []string
		for _, a := range e.Args {
			text = append(text, string(a.Value))
		}
		b.wrong = append(b.wrong, fmt.Sprintf("the console: %s %q", e.Type, text))
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, fmt.Sprintf("an exception: %+v", *e.ExceptionDetails))
	case *log.EventEntryAdded:
		text := fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
		if e.Entry.Source == log.EntrySourceNetwork {
			b.failures = append(b.failures, text)
		} else {
			b.wrong = append(b.wrong, text)
		}
	}
}

// clean is what must hold at the end of each test: the report of the policy is empty.
func (b *tab) clean() {
	if b.ctx.Err() == nil {
		if v := get[[]string](b, "violations"); len(v) > 0 {
			b.t.Errorf("the policy was violated: %q", v)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.asked {
		if !strings.HasPrefix(url, b.site.url+"/") {
			b.t.Errorf("the page has asked for %s", url)
		}
	}
	if len(b.asked) < 5 {
		b.t.Errorf("the browser was not listened to: it has asked for %q", b.asked)
	}
	for _, what := range b.wrong {
		b.t.Errorf("the browser says: %s", what)
	}
	if len(b.failures) > 0 && !b.mayFail {
		b.t.Errorf("requests have failed: %q", b.failures)
	}
}

// do does what a user does, or a developer.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// get evaluates an expression in the page.
func get[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// waits waits until a condition holds in the page.
func (b *tab) waits(what, condition string) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !get[bool](b, "!!("+condition+")") {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: it never was so: %s\n%s", what, condition, get[string](b, "document.body.innerText"))
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// is checks a condition in the page.
func (b *tab) is(what, condition string) {
	b.t.Helper()
	if !get[bool](b, "!!("+condition+")") {
		b.t.Errorf("%s: it is not so: %s\n%s", what, condition, get[string](b, "document.body.innerText"))
	}
}

// key presses keys, as a user does: a page that takes a key for itself keeps its character out of what has the focus.
func (b *tab) key(keys string) {
	b.t.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		down, up := events[0], events[len(events)-1]
		if len(events) == 3 {
			down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
		}
		b.do(command(input.DispatchKeyEvent, *down), command(input.DispatchKeyEvent, *up))
	}
}

// row is an expression for the row of a key.
func row(key string) string {
	text, err := json.Marshal(key)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("document.querySelector('tr[data-key=' + JSON.stringify(%s) + ']')", text)
}

// text is an expression for what a cell of a row says.
func text(key, cell string) string {
	return row(key) + ".querySelector('td." + cell + "').innerText.trim()"
}

// picture leaves a screenshot, and writes it into docs if it is one of those, and that is wanted.
func (b *tab) picture(name string, documented bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, img); err != nil {
		b.t.Fatal(err)
	}
	dir := os.Getenv(screenshots)
	if dir == "" {
		dir = b.t.TempDir()
	}
	dirs := []string{dir}
	if documented && *update {
		dirs = append(dirs, "../../docs/serve")
		if small.Len() > 150<<10 {
			b.t.Errorf("%s has %d bytes", name, small.Len())
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".png"), small.Bytes(), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}
