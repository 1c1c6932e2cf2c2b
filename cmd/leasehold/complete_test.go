package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// TestSplitWritten: in which store a shell looks for the locks whose names or URLs begin with a word.
func TestSplitWritten(t *testing.T) {
	t.Setenv(storeVariable, "file:///locks")
	a := &app{}
	for written, want := range map[string][4]string{
		"":                    {"", "file:///locks", "", ""},
		"jobs/a%20":           {"", "file:///locks", "jobs/a%20", ""},
		"s3://b":              {"", "", "", errNoStore.Error()},
		"s3://b/":             {"s3://b/", "s3://b", "", ""},
		"s3://b/jobs/a%20":    {"s3://b/", "s3://b", "jobs/a ", ""},
		"s3://b/l?region=x":   {"", "", "", errNoStore.Error()},
		"s3://b/l#x":          {"", "", "", errNoStore.Error()},
		"s3://b/%":            {"s3://b/", "s3://b", "", `invalid URL escape "%"`},
		"file://":             {"", "", "", errNoStore.Error()},
		"file:///":            {"file:///", "file:///", "", ""},
		"file:///lo":          {"file:///", "file:///", "lo", ""},
		"file:///dir/sub/a%2": {"file:///dir/sub/", "file:///dir/sub", "", `invalid URL escape "%2"`},
		"file:///dir/sub/l":   {"file:///dir/sub/", "file:///dir/sub", "l", ""},
	} {
		before, storeURL, prefix, err := a.splitWritten(written)
		got := [4]string{before, storeURL, prefix}
		if err != nil {
			got[3] = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", written, got, want)
		}
	}
	t.Setenv(storeVariable, "")
	if _, _, _, err := a.splitWritten("l"); err == nil {
		t.Error("a name lies somewhere without a store")
	}
}

// TestCompletedNames: a shell is given no name that it could not type, and not more than a person would read.
func TestCompletedNames(t *testing.T) {
	dir := t.TempDir()
	const record = `{"format":1,"token":7,"state":"free","holder":"me","address":"","ttl_ms":15000,"write_id":"x.1","session":""}`
	for _, name := range []string{"l\u202ex", "la", "lb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n := range mostCompletions + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("n%03d", n)), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(storeVariable, "file://"+dir)
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	for written, want := range map[string][]string{
		"l":                    {"la", "lb"},
		"x":                    nil,
		"file://" + dir + "/l": {"file://" + dir + "/la", "file://" + dir + "/lb", "file://" + dir + "/l%E2%80%AEx"},
	} {
		names, directive := (&app{}).completeLock(cmd, nil, written)
		last := cobra.ShellCompDirectiveNoFileComp
		if want == nil {
			last |= cobra.ShellCompDirectiveNoSpace
		}
		if !slices.Equal(names, want) || directive != last {
			t.Errorf("%q: %q, %v, want %q", written, names, directive, want)
		}
	}
	if names, _ := (&app{}).completeLock(cmd, nil, "n"); len(names) != 200 || names[199] != "n199" {
		t.Errorf("of many names %d are given: %q", len(names), names)
	}
}
