// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// sizeVariable is the size of the test: "full", as in docs/performance, with 20,000 secrets,
// 30,000 pods and time to settle, or "tenth", which is the default.
const sizeVariable = "WATERSHED_OPERATOR_SIZE"

// The caches have the names of docs/performance.
const (
	stockCache  = "controller-runtime's own"
	packedCache = "compat.NewInformer"
	tappedCache = "compat.NewInformer and compat.Tap"
)

const sites = 100

// operatorCluster is a cluster with many objects that the operator caches and few that it acts
// on.
type operatorCluster struct {
	*testing.T
	cluster *kubetest.Cluster
	client  client.Client
	load    kubetest.Workload
	// settle is how long an operator stays idle before it is measured.
	settle time.Duration
}

// TestOperator runs the operator with controller-runtime's cache and with Watershed's, on the
// same cluster through the same events, and compares the results and the resources
// used.
func TestOperator(t *testing.T) {
	w := newOperatorCluster(t)
	program := filepath.Join(t.TempDir(), "operator")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var stock outcome
	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "cache\tlive heap, MB\tRSS, MB\tCPU, s\treconciles\t")
	for n, subject := range []struct {
		name string
		args []string
	}{
		{stockCache, nil},
		{packedCache, []string{"-packed"}},
		{tappedCache, []string{"-packed", "-direct"}},
	} {
		w.reset()
		got := w.run(subject.name, program, subject.args...)
		fmt.Fprintf(out, "%s\t%.0f\t%.0f\t%.1f\t%.0f\t\n", subject.name, got.heap/1e6, got.rss/1e6, got.cpu,
			got.reconciles)
		if n == 0 {
			stock = got
			continue
		}
		if got.state != stock.state {
			t.Errorf("%s: the final state is not that with %s:\n%s", subject.name,
				stockCache, firstDifference(stock.state, got.state))
		}
		// How many events one reconcile handles depends on timing.
		if got.reconciles < sites || got.reconciles > 2*stock.reconciles || stock.reconciles > 2*got.reconciles {
			t.Errorf("%s: %.0f reconciles, %s %.0f", subject.name, got.reconciles, stockCache,
				stock.reconciles)
		}
		if got.heap > stock.heap*0.7 {
			t.Errorf("%s: live heap of %.0f MB, %s %.0f MB", subject.name, got.heap/1e6, stockCache,
				stock.heap/1e6)
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
}

func newOperatorCluster(t *testing.T) *operatorCluster {
	pods, secrets := 3_000, 2_000
	w := &operatorCluster{T: t, load: kubetest.Workload{Seed: 1}}
	switch size := os.Getenv(sizeVariable); size {
	case "", "tenth":
	case "full":
		pods, secrets, w.settle = 30_000, 20_000, 100*time.Second
	default:
		t.Fatalf("%s is %q, want full or tenth", sizeVariable, size)
	}
	ctrl.SetLogger(logr.Discard()) // the operators have their own
	w.cluster = kubetest.Start(t, &kubetest.Options{Name: "operator"})
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := addSites(scheme); err != nil {
		t.Fatal(err)
	}
	w.must(w.cluster.LoadPods(t.Context(), w.load, pods))
	w.must(w.cluster.LoadSecrets(t.Context(), w.load, secrets))
	_, err := w.cluster.Kubectl(t.Context(), "apply", "-f", "crd.yaml")
	w.must(err)
	_, err = w.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/sites.example.watershed.dev",
		"--timeout=60s")
	w.must(err)
	cfg := w.cluster.Config()
	cfg.QPS = -1
	w.client, err = client.New(cfg, client.Options{Scheme: scheme})
	w.must(err)
	return w
}

func (w *operatorCluster) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// site returns site n. It uses a secret of the workload, and has the name of ten of its
// pods.
func (w *operatorCluster) site(n int) *Site {
	secret := w.load.Secret(n * 10)
	return &Site{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: fmt.Sprintf("service-%05d", n)},
		Spec:       SiteSpec{Image: "registry.example/site:1", Replicas: 2, Secret: secret.Name},
	}
}

// reset restores the cluster to its state before an operator ran.
func (w *operatorCluster) reset() {
	w.Helper()
	ctx := w.Context()
	for n := range sites {
		site := w.site(n)
		key := client.ObjectKeyFromObject(site)
		w.must(client.IgnoreNotFound(w.client.Delete(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		})))
		w.must(client.IgnoreNotFound(w.client.Delete(ctx, site)))
		w.must(w.client.Create(ctx, w.site(n)))
		w.setSecret(n, w.load.Secret(n*10).Data)
	}
}

// setSecret replaces the content of a site's secret.
func (w *operatorCluster) setSecret(n int, data map[string][]byte) {
	w.Helper()
	want := w.load.Secret(n * 10)
	var secret corev1.Secret
	w.must(w.client.Get(w.Context(), client.ObjectKeyFromObject(want), &secret))
	secret.Data = data
	w.must(w.client.Update(w.Context(), &secret))
}

// outcome is the result of a run and the resources that it used.
type outcome struct {
	state                      string
	heap, rss, cpu, reconciles float64
}

// run starts an operator, makes it work, measures it and stops it.
func (w *operatorCluster) run(cache, program string, args ...string) outcome {
	w.Helper()
	p := start(w.T, cache, program, w.cluster.Kubeconfig(), args...)
	defer p.stop()
	w.wait(p, "the first reconcile", w.reconciled)

	// Every fifth secret changes. The operator must find its site through the index.
	for n := 0; n < sites; n += 5 {
		w.setSecret(n, map[string][]byte{"release": []byte(fmt.Sprint("changed ", n))})
	}
	w.wait(p, "changed secrets", w.reconciled)

	// The operator must recreate deleted deployments.
	for n := 1; n < sites; n += 10 {
		site := w.site(n)
		w.must(w.client.Delete(w.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name},
		}))
	}
	w.wait(p, "deleted deployments", w.reconciled)

	time.Sleep(w.settle) // reconciliations that are not needed are counted, too
	got := outcome{state: w.state(), cpu: p.metrics()["process_cpu_seconds_total"]}
	// Watershed keeps objects decoded for some seconds when they are read twice.
	w.wait(p, "decoded objects are dropped", func() bool { return p.kept() < 4e6 })
	p.profile()
	m := p.metrics()
	got.heap, got.rss = m["go_memstats_heap_alloc_bytes"], m["process_resident_memory_bytes"]
	got.reconciles = sum(m, "controller_runtime_reconcile_total", "")
	if args != nil {
		w.Logf("%s: %.0f of %.0f objects are packed; MB of the informers: %s", cache,
			sum(m, "watershed_objects_packed", ""), sum(m, "watershed_objects", ""), megabytes(m))
	}
	return got
}

// megabytes returns the memory of each informer of Watershed, the largest first.
func megabytes(m map[string]float64) string {
	sizes := map[string]float64{}
	for name := range m {
		if _, rest, ok := strings.Cut(name, "watershed_memory_bytes{"); ok {
			_, rest, _ = strings.Cut(rest, `resource="`)
			resource, _, _ := strings.Cut(rest, `"`)
			sizes[resource] = sum(m, "watershed_memory_bytes", `resource="`+resource+`"`)
		}
	}
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int { return cmp.Compare(sizes[b], sizes[a]) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %.1f", name, sizes[name]/1e6)
	}
	return strings.Join(names, ", ")
}

// sum returns the sum of a metric's series that have a label, or of all if it is empty.
func sum(m map[string]float64, metric, label string) (total float64) {
	for name, value := range m {
		if strings.HasPrefix(name, metric+"{") && strings.Contains(name, label) {
			total += value
		}
	}
	return total
}

func (w *operatorCluster) wait(p *process, what string, done func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 4*time.Minute)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			w.Fatalf("%s: %v\n%s", what, ctx.Err(), p.output())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// reconciled reports whether every site is in its desired state.
func (w *operatorCluster) reconciled() bool {
	w.Helper()
	for n := range sites {
		var site Site
		var secret corev1.Secret
		var deployment appsv1.Deployment
		want := w.site(n)
		key := client.ObjectKeyFromObject(want)
		w.must(w.client.Get(w.Context(), key, &site))
		w.must(w.client.Get(w.Context(), client.ObjectKey{Namespace: key.Namespace, Name: want.Spec.Secret}, &secret))
		if err := w.client.Get(w.Context(), key, &deployment); err != nil {
			w.must(client.IgnoreNotFound(err))
			return false
		}
		sum := checksum(&secret)
		if site.Status.Checksum != sum || site.Status.Pods != 10 ||
			deployment.Spec.Template.Annotations[checksumAnnotation] != sum {
			return false
		}
	}
	return true
}

// state returns what the operator created, without the parts that differ between any
// two runs.
func (w *operatorCluster) state() string {
	w.Helper()
	var lines []string
	var all SiteList
	w.must(w.client.List(w.Context(), &all))
	for _, s := range all.Items {
		lines = append(lines, fmt.Sprintf("site %s/%s %+v %+v", s.Namespace, s.Name, s.Spec, s.Status))
	}
	var deployments appsv1.DeploymentList
	w.must(w.client.List(w.Context(), &deployments))
	for _, d := range deployments.Items {
		text, err := json.Marshal(d.Spec)
		w.must(err)
		spec := sha256.Sum256(text)
		owner := ""
		if ref := metav1.GetControllerOf(&d); ref != nil {
			owner = ref.Kind + " " + ref.Name
		}
		lines = append(lines, fmt.Sprintf("deployment %s/%s of %s %s", d.Namespace, d.Name, owner,
			hex.EncodeToString(spec[:])))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func firstDifference(a, b string) string {
	left, right := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(left), len(right)) {
		if left[i] != right[i] {
			return left[i] + "\n" + right[i]
		}
	}
	return fmt.Sprintf("%d and %d lines", len(left), len(right))
}
