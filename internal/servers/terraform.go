package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Terraform returns the path of terraform, or else tofu, on PATH. It skips the test if both are
// missing.
func Terraform(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no terraform and no tofu here")
	return ""
}

// TerraformIn makes a directory with that configuration, and returns a function that makes
// terraform commands there. They ask no questions and reach no registry, so the configuration
// may use only built-in providers. You may add to a command's environment. Commands are killed
// when the test ends.
func TerraformIn(t testing.TB, path, config string) (dir string, command func(args ...string) *exec.Cmd) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir = dir
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "USER=" + filepath.Base(dir), "TMPDIR=" + os.TempDir(),
			"TF_IN_AUTOMATION=1", "TF_INPUT=0", "TF_CLI_ARGS=-no-color", "CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE=" + os.DevNull,
		}
		return cmd
	}
}
