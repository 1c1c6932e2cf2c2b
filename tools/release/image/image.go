package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	command      = "/leasehold"
	certificates = "/etc/ssl/certs/ca-certificates.crt" // where package crypto/x509 looks first on Linux
	user         = "65532:65532"                        // nobody's
)

// A source is what the command was made of.
type source struct {
	version, revision string
	date              time.Time
}

// write makes an image of each binary, by its platform, and a layout of them.
func (s source) write(dir string, binaries map[string]string) (digest string, err error) {
	roots, err := authorities()
	if err != nil {
		return "", err
	}
	index := v1.ImageIndex(empty.Index)
	for _, platform := range slices.Sorted(maps.Keys(binaries)) {
		image, failed := s.image(platform, binaries[platform], roots)
		if failed != nil {
			return "", fmt.Errorf("%s: %w", platform, failed)
		}
		p, failed := v1.ParsePlatform(platform)
		if failed != nil {
			return "", failed
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: p}})
	}
	index = mutate.IndexMediaType(index, types.OCIImageIndex)
	if err = os.RemoveAll(dir); err != nil {
		return "", err
	}
	// The layout's own index has one entry, the one for all platforms: that is what is pushed.
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	if err = at.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": s.tag()})); err != nil {
		return "", err
	}
	hash, err := index.Digest()
	return hash.String(), err
}

// tag is the version as registries take it.
func (s source) tag() string {
	if s.version == "" {
		return "latest"
	}
	return strings.ReplaceAll(strings.TrimPrefix(s.version, "v"), "+", "-")
}

func (s source) image(platform, binary string, roots []byte) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	if err = static(program, platform); err != nil {
		return nil, fmt.Errorf("%s: %w", binary, err)
	}
	// Certificates change less often than the command: a layer of their own is not sent again.
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		layer(s.files(entry{certificates, 0o644, roots})), layer(s.files(entry{command, 0o755, program})))
	if err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	_, config.Architecture, _ = strings.Cut(platform, "/")
	config.OS = "linux"
	config.Created = v1.Time{Time: s.date.UTC()}
	config.Config = v1.Config{
		User:       user,
		Entrypoint: []string{command},
		Env:        []string{"PATH=/"},
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "leasehold",
			"org.opencontainers.image.description": "Leader election and distributed locks on object storage",
			"org.opencontainers.image.source":      "https://github.com/leasehold/leasehold",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     s.version,
			"org.opencontainers.image.revision":    s.revision,
		},
	}
	config.History = []v1.History{
		{Created: config.Created, CreatedBy: "certificates of golang.org/x/crypto/x509roots/fallback/bundle"},
		{Created: config.Created, CreatedBy: "leasehold " + s.version},
	}
	return mutate.ConfigFile(image, config)
}

// static makes sure that a binary is one for the platform that needs nothing beside it.
func static(program []byte, platform string) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("it is no program for Linux: %w", err)
	}
	want := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}[platform]
	if f.Machine != want {
		return fmt.Errorf("it is for %v, not for %v: build it with GOARCH", f.Machine, want)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("it needs a dynamic linker, and the image has none: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// authorities are the certificates of those that Mozilla trusts, as a file.
func authorities() ([]byte, error) {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a file cannot say for which certificates it is trusted
		}
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// An entry is a file of a layer.
type entry struct {
	path string
	mode int64
	body []byte
}

// files is a layer: root's, of the time of the source, with the directories above each file.
func (s source) files(entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	write := func(h tar.Header, body []byte) {
		h.ModTime, h.Format, h.Size = s.date.UTC().Truncate(time.Second), tar.FormatPAX, int64(len(body))
		if s.date.IsZero() {
			h.ModTime = time.Unix(0, 0)
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err) // into memory, of names that are written here
		}
		if _, err := w.Write(body); err != nil {
			panic(err)
		}
	}
	for _, e := range entries {
		name := strings.TrimPrefix(e.path, "/")
		var above []string
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			above = append(above, dir)
		}
		for _, dir := range slices.Backward(above) {
			write(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
		}
		write(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: e.mode}, e.body)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func layer(text []byte) v1.Layer {
	l, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		panic(err) // it is read from memory
	}
	return l
}
