package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// A build says what this program was made of.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// These are set by the linker in releases, and where the source is no clone, as in a
// distribution's build: -ldflags "-X main.setVersion=1.2.3 -X main.setRevision=… -X main.setDate=…".
// Each that is empty is what the go command has written into the program.
var (
	setVersion  string
	setRevision string
	setDate     string // RFC 3339
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version, the source revision and its date, the Go version and the
platform.

"modified" means that the source differed from the revision.`,
		Args: atMost(0),
		RunE: func(*cobra.Command, []string) error { return a.tellVersion() },
	}
}

func (a *app) tellVersion() error {
	b := thisBuild()
	return a.print(b.String(), b)
}

func (b build) String() string {
	var source []string
	if b.Revision != "" {
		source = append(source, b.Revision)
	}
	if b.Modified {
		source = append(source, "modified")
	}
	if b.Time != "" {
		source = append(source, b.Time)
	}
	text := "leasehold " + b.Version
	if len(source) > 0 {
		text += " (" + strings.Join(source, ", ") + ")"
	}
	return fmt.Sprintf("%s, %s, %s\n", text, b.Go, b.Platform)
}

func thisBuild() build {
	info, _ := debug.ReadBuildInfo() // nil without any
	return buildOf(info, setVersion, setRevision, setDate)
}

// buildOf prefers what the linker was told, each by itself. A version is written without a "v" in the names of
// packages and with one by the go command: it is told with one.
func buildOf(info *debug.BuildInfo, version, revision, date string) build {
	b := build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		if info.Main.Version != "" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if version != "" {
		b.Version = "v" + strings.TrimPrefix(version, "v")
	}
	if revision != "" {
		b.Revision = revision
	}
	if date != "" {
		b.Time = date
	}
	return b
}
