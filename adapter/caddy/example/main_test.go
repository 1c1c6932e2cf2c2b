package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExample builds the program of the README, and has it check the README's Caddyfile and move a storage as the README says.
func TestExample(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "caddy.exe")
	run(t, "go", "build", "-o", program, ".")
	t.Setenv("STORE_URL", "file://"+filepath.ToSlash(dir)+"/store")
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("XDG_DATA_HOME", dir)
	if said := run(t, program, "list-modules"); !strings.Contains(said, "caddy.storage.leasehold") {
		t.Error(said)
	}
	run(t, program, "validate", "--config", "Caddyfile")

	config, old := filepath.Join(dir, "old.json"), filepath.Join(dir, "old", "certificates", "ca")
	for path, text := range map[string]string{
		filepath.Join(old, "example.com.crt"): "pem",
		config:                                `{"storage": {"module": "file_system", "root": "` + filepath.ToSlash(filepath.Join(dir, "old")) + `"}}`,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(dir, "all.tar")
	run(t, program, "storage", "export", "--config", config, "--output", archive)
	run(t, program, "storage", "import", "--config", "Caddyfile", "--input", archive)
	if got, err := os.ReadFile(filepath.Join(dir, "store", "values", "certificates", "ca", "example.com.crt=")); err != nil || string(got) != "pem" {
		t.Errorf("%q, %v", got, err)
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestReadme: what the README shows are these files.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for language, name := range map[string]string{"go": "main.go", "caddyfile": "Caddyfile"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(readme), "```"+language+"\n"+string(text)+"```\n") {
			t.Errorf("README.md does not show example/%s as it is", name)
		}
	}
}
