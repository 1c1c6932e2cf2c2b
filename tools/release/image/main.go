// Image builds the container image without a daemon: the command, the certificates of the authorities that sign what
// stores show, and nothing else.
//
//	image [-o DIR] [-version V] [-revision R] [-date T] OS/ARCH=BINARY…
//
// DIR gets an OCI layout with one image for each platform, which "skopeo copy oci:DIR docker://…" and "crane push"
// send to a registry, and podman and "docker load" read. The last line on stdout is the digest. The same binaries, the
// same flags and the same version of this module give the same digest.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	var (
		out      = flag.String("o", "image", "the `directory` of the layout; one that is there is replaced")
		version  = flag.String("version", "", "the `version`, for the labels")
		revision = flag.String("revision", "", "the `revision` of the source, for the labels")
		date     = flag.String("date", "", "when the source was committed, as `RFC 3339`; for the labels and the times of files")
	)
	flag.Parse()
	digest, err := run(*out, *version, *revision, *date, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}

func run(out, version, revision, date string, args []string) (string, error) {
	s := source{version: version, revision: revision}
	if date != "" {
		var err error
		if s.date, err = time.Parse(time.RFC3339, date); err != nil {
			return "", fmt.Errorf("-date: %w", err)
		}
	}
	if len(args) == 0 {
		return "", errors.New("name a binary for each platform, such as linux/amd64=leasehold")
	}
	binaries := map[string]string{}
	for _, arg := range args {
		platform, path, ok := strings.Cut(arg, "=")
		if !ok || !strings.HasPrefix(platform, "linux/") {
			return "", fmt.Errorf("%q is not OS/ARCH=BINARY, such as linux/amd64=leasehold", arg)
		}
		binaries[platform] = path
	}
	return s.write(out, binaries)
}
