// Types checks the types of the packages of the module in a directory, and of their tests, as they are on another platform.
// Nothing is compiled: that would take minutes for each platform.
//
//	types GOOS/GOARCH DIR...
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: types GOOS/GOARCH DIR...")
		os.Exit(2)
	}
	goos, goarch, _ := strings.Cut(os.Args[1], "/")
	bad := 0
	for _, dir := range os.Args[2:] {
		fmt.Printf("types in %s on %s\n", dir, os.Args[1])
		// NeedDeps: without it the dependencies' types would be read from what the compiler writes.
		loaded, err := packages.Load(&packages.Config{
			Mode:  packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes,
			Dir:   dir,
			Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
			Tests: true,
		}, "./...")
		if err != nil {
			fmt.Fprintf(os.Stderr, "types in %s: %v\n", dir, err)
			os.Exit(1)
		}
		if len(loaded) == 0 {
			fmt.Fprintf(os.Stderr, "types in %s: there are no packages\n", dir)
			os.Exit(1)
		}
		bad += packages.PrintErrors(loaded)
	}
	if bad > 0 {
		os.Exit(1)
	}
}
