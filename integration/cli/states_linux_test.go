package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/servers"
)

// Terraform itself keeps its state with leasehold serve, under a password.
func TestServeTerraform(t *testing.T) {
	t.Parallel()
	path := servers.Terraform(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := clitest.Listen(t, clitest.Command(t, "", "serve", "--http", "127.0.0.1:0", "--http-token-file", secret, "--terraform", "file://"+dir+"/states", "--mkdir"))
	_, address, _ := strings.Cut(s.Hear("keeping the states of Terraform "), ", at ")
	_, terraform := servers.TerraformIn(t, path, `
terraform {
  backend "http" {
    address        = "`+strings.TrimSuffix(address, "NAME")+`prod"
    lock_address   = "`+strings.TrimSuffix(address, "NAME")+`prod"
    unlock_address = "`+strings.TrimSuffix(address, "NAME")+`prod"
    username       = "terraform"
    retry_max      = 0
  }
}

resource "terraform_data" "value" {
  input = "one"
}

output "value" {
  value = terraform_data.value.output
}
`)
	run := func(password string, args ...string) (string, error) {
		c := terraform(args...)
		c.Env = append(c.Env, "TF_HTTP_PASSWORD="+password)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := run("guessed", "init"); err == nil || !strings.Contains(out, "auth") {
		t.Errorf("with a wrong password: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"init", "-reconfigure"}, {"apply", "-auto-approve"}, {"plan", "-detailed-exitcode"}} {
		if out, err := run("sesame", args...); err != nil {
			t.Fatalf("terraform %v: %v\n%s", args, err, out)
		}
	}
	if out, err := run("sesame", "output", "-raw", "value"); err != nil || out != "one" {
		t.Errorf("the output is %q, %v", out, err)
	}
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
