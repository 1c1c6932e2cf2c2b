package main

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const (
	version  = "v1.2.3+abc"
	revision = "0123456789abcdef"
	date     = "2026-11-26T10:00:00Z"
)

// built is a program for Linux and this machine's processor. What it does has no meaning for the image, and a small one
// is built sooner than the command: net makes it dynamic where there is cgo.
func built(t *testing.T, cgo string) (platform, path string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nimport _ \"net\"\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "leasehold")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "main.go")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOOS=linux", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return "linux/" + runtime.GOARCH, path
}

// TestImage: the layout is valid; the image runs the command as nobody, has certificates by which a server's can be
// verified, and nothing else; and it is the same the next time.
func TestImage(t *testing.T) {
	t.Parallel()
	platform, binary := built(t, "0")
	dir := t.TempDir()
	digest, err := run(filepath.Join(dir, "a"), version, revision, date, []string{platform + "=" + binary})
	if err != nil {
		t.Fatal(err)
	}
	again, err := run(filepath.Join(dir, "b"), version, revision, date, []string{platform + "=" + binary})
	if err != nil || again != digest {
		t.Errorf("the digests are %s and %s, %v", digest, again, err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	outer, err := index.IndexManifest()
	if err != nil || len(outer.Manifests) != 1 || outer.Manifests[0].Digest.String() != digest || outer.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3-abc" {
		t.Fatalf("the layout has %+v, %v, want %s", outer, err, digest)
	}
	all, err := index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err = validate.Index(all); err != nil {
		t.Error(err)
	}
	inner, err := all.IndexManifest()
	if err != nil || len(inner.Manifests) != 1 || inner.Manifests[0].Platform.String() != platform {
		t.Fatalf("the index has %+v, %v, want one image for %s", inner, err, platform)
	}
	image, err := all.Image(inner.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	checkConfig(t, image)
	files := contents(t, image)
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if got := files["leasehold 755 0:0"]; string(got) != string(program) {
		t.Errorf("the command in it has %d bytes, want the %d that were built", len(got), len(program))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt 644 0:0"]) {
		t.Error("it has no certificates")
	}
	if n := strings.Count(string(files["etc/ssl/certs/ca-certificates.crt 644 0:0"]), "BEGIN CERTIFICATE"); n < 80 {
		t.Errorf("it has %d certificates", n)
	}
	if len(files) != 2 {
		t.Errorf("it has %d files, want the command and the certificates", len(files))
	}
}

func checkConfig(t *testing.T, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/leasehold"}) || len(c.Cmd) > 0 || config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("the image runs %q as %q on %s/%s", append(c.Entrypoint, c.Cmd...), c.User, config.OS, config.Architecture)
	}
	if got := c.Labels["org.opencontainers.image.version"] + " " + c.Labels["org.opencontainers.image.revision"] + " " + c.Labels["org.opencontainers.image.licenses"]; got != version+" "+revision+" Apache-2.0" {
		t.Errorf("it is labelled %q", got)
	}
	if got := config.Created.UTC().Format("2006-01-02T15:04:05Z"); got != date {
		t.Errorf("it was created at %s, want %s", got, date)
	}
}

// contents are the files of all layers, by "NAME MODE UID:GID".
func contents(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, l := range layers {
		text, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(text); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := h.ModTime.UTC().Format("2006-01-02T15:04:05Z"); got != date {
				t.Errorf("%s is of %s, want %s", h.Name, got, date)
			}
			switch h.Typeflag {
			case tar.TypeDir:
			case tar.TypeReg:
				body, err := io.ReadAll(r)
				if err != nil {
					t.Fatal(err)
				}
				files[fmt.Sprintf("%s %o %d:%d", h.Name, h.Mode, h.Uid, h.Gid)] = body
			default:
				t.Errorf("%s is neither a file nor a directory", h.Name)
			}
		}
		if err := text.Close(); err != nil {
			t.Error(err)
		}
	}
	return files
}

// TestImageIsRefused: what would be no image that runs is refused with the reason.
func TestImageIsRefused(t *testing.T) {
	t.Parallel()
	platform, binary := built(t, "0")
	other := map[string]string{"linux/amd64": "linux/arm64", "linux/arm64": "linux/amd64"}[platform]
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		date string
		args []string
		want string
	}{
		"nothing":           {date, nil, "name a binary"},
		"no platform":       {date, []string{binary}, "is not OS/ARCH=BINARY"},
		"another system":    {date, []string{"windows/amd64=" + binary}, "is not OS/ARCH=BINARY"},
		"another processor": {date, []string{other + "=" + binary}, "build it with GOARCH"},
		"a script":          {date, []string{platform + "=" + text}, "no program for Linux"},
		"no file":           {date, []string{platform + "=" + text + "x"}, "no such file"},
		"no date":           {"yesterday", []string{platform + "=" + binary}, "-date"},
	} {
		if _, err := run(filepath.Join(t.TempDir(), "image"), version, revision, c.date, c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Log("a binary with cgo was not tried: there is no C compiler")
		return
	}
	platform, binary = built(t, "1")
	if _, err := run(filepath.Join(t.TempDir(), "image"), version, revision, date, []string{platform + "=" + binary}); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("a binary that is not static: %v", err)
	}
}
