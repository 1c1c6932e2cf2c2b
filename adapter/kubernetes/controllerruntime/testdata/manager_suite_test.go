package manager

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// What the specs use. There is no API server: nothing listens at its address.
var (
	cfg                *rest.Config
	clientset          *kubernetes.Clientset
	clientRoundTripper http.RoundTripper
)

var specs []SpecReport

var _ = ReportAfterEach(func(r SpecReport) { specs = append(specs, r) })

// TestSource runs all specs but those in LEFT_OUT, one a line, and reports each as a subtest.
func TestSource(t *testing.T) {
	logf.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	metricsserver.DefaultBindAddress = "0" // no listener
	cfg = &rest.Config{Host: "http://127.0.0.1:1", WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
		clientRoundTripper = rt
		return rt
	}}

	RegisterFailHandler(Fail)
	suite, reporter := GinkgoConfiguration()
	leftOut := strings.Split(os.Getenv("LEFT_OUT"), "\n")
	for _, spec := range leftOut {
		suite.SkipStrings = append(suite.SkipStrings, regexp.QuoteMeta(spec)+"$")
	}
	RunSpecs(t, "Manager Suite", suite, reporter)
	skipped := 0
	for _, spec := range specs {
		if spec.State == types.SpecStateSkipped {
			skipped++
			continue
		}
		t.Run(spec.FullText(), func(t *testing.T) {
			if spec.State != types.SpecStatePassed {
				t.Errorf("%v: %s", spec.State, spec.FailureMessage())
			}
		})
	}
	if skipped != len(leftOut) {
		t.Errorf("%d specs were left out, want one for each of %q", skipped, leftOut)
	}
}
