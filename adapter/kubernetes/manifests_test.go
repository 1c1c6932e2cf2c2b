package leasekubernetes_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifests are those that users are given.
const manifests = "../../dist/kubernetes"

// decode reads all objects of a manifest, and refuses a field that the API does not have or that is there twice.
func decode(manifest []byte) (objects []runtime.Object, err error) {
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", len(objects)+1, err)
		}
		objects = append(objects, object)
	}
}

// faults says what is wrong in a manifest beyond its fields: what does not fit together.
func faults(objects []runtime.Object) (wrong []string) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	accounts, configs, deployments := map[string]bool{}, map[string]map[string]string{}, 0
	var pods map[string]string // the labels of those that are made
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.ServiceAccount:
			accounts[o.Name] = true
		case *corev1.ConfigMap:
			configs[o.Name] = o.Data
		case *appsv1.Deployment:
			deployments++
			pods = o.Spec.Template.Labels
			if !within(o.Spec.Selector.MatchLabels, pods) {
				add("the deployment's selector %v does not match its pods %v", o.Spec.Selector.MatchLabels, pods)
			}
		case *policyv1.PodDisruptionBudget:
		default:
			add("an object of the kind %T is not expected", o)
		}
	}
	if deployments != 1 {
		add("%d deployments, want 1", deployments)
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *policyv1.PodDisruptionBudget:
			if !within(o.Spec.Selector.MatchLabels, pods) {
				add("the budget's selector %v does not match the pods %v", o.Spec.Selector.MatchLabels, pods)
			}
		case *appsv1.Deployment:
			if name := o.Spec.Template.Spec.ServiceAccountName; !accounts[name] {
				add("there is no service account %q", name)
			}
			wrong = append(wrong, podFaults(&o.Spec.Template.Spec, configs)...)
		}
	}
	return wrong
}

var reference = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

func podFaults(pod *corev1.PodSpec, configs map[string]map[string]string) (wrong []string) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	mounted := map[string]bool{}
	users := map[int64]bool{}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			if mounted[m.Name] = true; !volumes[m.Name] {
				add("%s mounts the volume %q, which is not there", c.Name, m.Name)
			}
		}
		known := map[string]bool{}
		for _, e := range c.Env {
			known[e.Name] = true
		}
		for _, from := range c.EnvFrom {
			config, ok := configs[from.ConfigMapRef.Name]
			if !ok {
				add("%s has variables of %q, which is not there", c.Name, from.ConfigMapRef.Name)
			}
			for name := range config {
				known[name] = true
			}
		}
		for _, m := range reference.FindAllStringSubmatch(strings.Join(c.Args, " "), -1) {
			if !known[m[1]] {
				add("%s has the argument $(%s), which is no variable of it", c.Name, m[1])
			}
		}
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
			add("%s may do more than it needs", c.Name)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
			add("%s does not say what it needs", c.Name)
		}
		if s != nil && s.RunAsUser != nil {
			users[*s.RunAsUser] = true
		}
	}
	for _, v := range slices.Sorted(maps.Keys(volumes)) {
		if !mounted[v] {
			add("nobody mounts the volume %q", v)
		}
	}
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 {
		add("the pod may run as root")
	}
	if len(users) > 0 {
		add("the containers do not all run as the pod's user, whose socket it is")
	}
	if g := pod.TerminationGracePeriodSeconds; g == nil || *g < 45 { // TTL, what a release may take, and room
		add("the pod has too little time to end")
	}
	return wrong
}

// commands are what leasehold is told to do in a manifest.
func commands(objects []runtime.Object) (all [][]string) {
	for _, object := range objects {
		d, ok := object.(*appsv1.Deployment)
		if !ok {
			continue
		}
		for _, c := range slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers) {
			if c.Name == "leasehold" || slices.Equal(c.Command, []string{"/opt/leasehold/leasehold"}) {
				all = append(all, c.Args)
			}
		}
	}
	return all
}

// TestManifests: each manifest is what the API understands, its parts fit together, and leasehold has the commands
// and flags that it uses.
func TestManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d manifests in %s, %v", len(files), manifests, err)
	}
	command := filepath.Join(t.TempDir(), "leasehold")
	if out, err := exec.CommandContext(t.Context(), "go", "-C", "../..", "build", "-o", command, "./cmd/leasehold").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := decode(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, wrong := range faults(objects) {
				t.Error(wrong)
			}
			used := commands(objects)
			if len(used) != 1 {
				t.Errorf("leasehold is run %d times, want once", len(used))
			}
			for _, args := range used {
				help, err := exec.CommandContext(t.Context(), command, args[0], "--help").Output()
				if err != nil || !bytes.Contains(help, []byte("leasehold "+args[0])) {
					t.Errorf("leasehold %s --help: %v: %s", args[0], err, help)
				}
				for _, arg := range args {
					if arg == "--" {
						break
					}
					if strings.HasPrefix(arg, "--") && !regexp.MustCompile(`(?m)^ .*`+arg+`\b`).Match(help) {
						t.Errorf("leasehold %s has no %s", args[0], arg)
					}
				}
			}
		})
	}
}

// TestManifestsAreRefused: each of these faults, written into a manifest that is right, is found.
func TestManifestsAreRefused(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(manifests, "elector.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"replicas: 2", "replica: 2", `unknown field "spec.replica"`},
		{"replicas: 2", "replicas: 2\n  replicas: 3", `already set`},
		{"replicas: 2", "replicas: many", `cannot unmarshal`},
		{"apiVersion: apps/v1", "apiVersion: apps/v2", `no kind "Deployment" is registered`},
		{"serviceAccountName: primary", "serviceAccountName: other", `no service account "other"`},
		{"            - configMapRef:\n                name: primary-lock", "            - configMapRef:\n                name: other", `variables of "other"`},
		{"  LOCK: ", "  THE_LOCK: ", `$(LOCK), which is no variable`},
		{"            - name: run\n              mountPath", "            - name: tmp\n              mountPath", `the volume "tmp"`},
		{"runAsNonRoot: true", "runAsNonRoot: false", `may run as root`},
		{"drop: [ALL]", "drop: []", `may do more`},
		{"terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 5", `too little time`},
		{"  selector:\n    matchLabels:\n      app.kubernetes.io/name: primary\n  template", "  selector:\n    matchLabels:\n      app.kubernetes.io/name: other\n  template", `deployment's selector`},
	} {
		broken := strings.Replace(string(text), c.from, c.to, 1)
		if broken == string(text) {
			t.Errorf("the manifest has no %q", c.from)
		}
		objects, err := decode([]byte(broken))
		said := strings.Join(faults(objects), "\n")
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, c.want) {
			t.Errorf("%q in the place of %q: %q, want %q", c.to, c.from, said, c.want)
		}
	}
}

// within reports that all labels of a selector are those of an object.
func within(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}
