// Package stores tests the URLs of stores with what the machine has around it.
package stores_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

const inProcess = "LEASEHOLD_TEST_METADATA_OUT_OF_REACH"

// TestMetadataServerOutOfReach: Google's library tries for seconds, and then no token is to be had for now. It looks
// once in a process whether there is such a server, so the case has a process of its own. (Package storeurl tests what
// the server may answer.)
func TestMetadataServerOutOfReach(t *testing.T) {
	if os.Getenv(inProcess) != "" {
		st, err := storeurl.Open(t.Context(), "gs://bucket?endpoint=https://127.0.0.1:9")
		if err != nil {
			t.Fatal(err)
		}
		_, err = st.Get(t.Context(), "k", "")
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "the metadata server of Google Cloud") {
			t.Error(err)
		}
		return
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMetadataServerOutOfReach$", "-test.v")
	cmd.Env = append(os.Environ(), inProcess+"=1", "GOOGLE_APPLICATION_CREDENTIALS=", "STORAGE_EMULATOR_HOST=", "HOME="+home, "USERPROFILE="+home, "APPDATA="+home,
		"GCE_METADATA_HOST="+testenv.Refused)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
