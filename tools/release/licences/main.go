// Licences collects the licences of all modules that are linked into Go packages, and refuses those under which this
// project links nothing.
//
//	licences [-C DIR] [-o FILE] PACKAGE…
//
// It looks at the packages for each platform of a release, and at the licence files in the directory of each linked
// package and in those above it, up to the root of its module. FILE gets their texts, with the notices. The exit
// code is 1 if a licence is refused, unknown or missing; the messages name the module, the file, and what is in it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
)

func main() {
	dir := flag.String("C", ".", "the `directory` of the module whose packages they are")
	out := flag.String("o", "", "write the texts to this `file`")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "licences: name the packages, such as ./cmd/leasehold")
		os.Exit(2)
	}
	if err := run(context.Background(), *dir, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, out string, packages []string) error {
	modules, err := linked(ctx, dir, platforms, packages)
	if err != nil {
		return err
	}
	if err := check(modules); err != nil {
		return err
	}
	for _, m := range modules {
		fmt.Printf("%s %s: %s\n", m.path, m.version, m.ids())
	}
	if out == "" {
		return nil
	}
	return os.WriteFile(out, text(modules), 0o644)
}
