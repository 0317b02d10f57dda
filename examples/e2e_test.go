// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/internal/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// held is a pod that no node takes and that a finalizer keeps. When the finalizer is
// removed, the watch reports only the pod's deletion.
const held = `{"metadata":{"finalizers":["example.com/held"]},"spec":{"nodeSelector":{"no":"where"}}}`

// TestExamples runs all programs concurrently on one cluster, creates and deletes pods,
// and compares the output of the programs with that of kubectl.
func TestExamples(t *testing.T) {
	cluster := kubetest.Start(t, &kubetest.Options{Name: "examples", Nodes: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := cluster.Kubectl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	begin := time.Now()
	phase := func(what string) {
		t.Logf("%s: %s", what, time.Since(begin).Round(100*time.Millisecond))
		begin = time.Now()
	}
	// One object exists before the programs start.
	kubectl("run", "web", "--image=web", "--labels=app=web")
	kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=60s")
	dir, names := build(t)
	phase("build")

	var run []string
	example := func(name string, args ...string) *program {
		t.Helper()
		run = append(run, name)
		return start(t, cluster.Kubeconfig(), filepath.Join(dir, name), args...)
	}
	judge := start(t, cluster.Kubeconfig(), cluster.KubectlPath(), "get", "pods", "--watch", "--output-watch-events",
		"-o", `jsonpath={.type} {.object.metadata.name} {.object.status.phase}{"\n"}`)
	watchers := map[string]*program{
		"listwatch":        example("pipeline", "listwatch"),
		"listwatch all":    example("pipeline", "listwatch", "-list=false"),
		"reflector":        example("pipeline", "reflector"),
		"reflector known":  example("pipeline", "reflector", "-known"),
		"watchdog":         example("watchdog"),
		"pipeline":         example("pipeline", "-cluster", "-listen=127.0.0.1:0"),
		"sharedinformer":   example("sharedinformer", "-slow=200ms"),
		"factory":          example("factory", "-kubeconfig="+cluster.Kubeconfig(), "-context=examples"),
		"listwatch field":  example("pipeline", "listwatch", "-field=status.phase=Running"),
		"fleet":            example("fleet", "-watch"),
		"kubectl, a judge": judge,
	}
	byLabel := example("pipeline", "listwatch", "-l=app=nettool")
	index := example("sharedinformer", "-slow=0", "-listen=127.0.0.1:0")
	for _, p := range watchers {
		p.awaitText(t, "web") // from now on they receive everything
	}
	watchers["factory"].awaitText(t, "# config maps were given back: 0 are kept")
	for _, p := range []*program{watchers["listwatch"], watchers["listwatch field"], watchers["fleet"], byLabel} {
		p.awaitText(t, "# watch")
	}
	indexes := []string{indexOf(t, index), indexOf(t, watchers["pipeline"])}
	wantAnswers := func(want string) {
		t.Helper()
		for _, address := range indexes {
			wantAnswer(t, address+"/?app=nettool", want)
		}
	}
	wantAnswers(`[]`)
	phase("all programs in step")
	for _, c := range []struct {
		name string
		test func(t *testing.T, example func(string, ...string) *program, kubectl func(...string) string)
	}{
		{"factory by hand", testFactoryByHand}, {"queries", testQueries}, {"controller", testController},
		{"dropin", testDropin},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, example, kubectl) })
		phase(c.name)
	}

	kubectl("run", "nettool", "--image=nettool", "--labels=app=nettool")
	kubectl("run", "held", "--image=nettool", "--overrides="+held)
	t.Run("once", func(t *testing.T) { // while nettool is starting
		testOnce(t, example, kubectl)
	})
	kubectl("wait", "pod/nettool", "--for=condition=Ready", "--timeout=60s")
	wantAnswers(`["default/nettool"]`)
	watchers["sharedinformer late"] = example("sharedinformer", "-slow=0", "-late=500ms", "-resync=300ms")
	watchers["sharedinformer late"].awaitText(t, "late   OnAdd: web Running (was there)")
	kubectl("delete", "pod", "held", "--wait=false")
	// Events come in order: a program that has seen this pod has seen all earlier ones.
	mark := func(name string) {
		t.Helper()
		kubectl("run", name, "--image=mark")
		for _, p := range watchers {
			p.awaitText(t, name)
		}
	}
	mark("mark-between")
	kubectl("patch", "pod", "held", "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
	kubectl("delete", "pod", "nettool", "--timeout=80s")
	phase("life of nettool")

	mark("mark-last")
	watchers["sharedinformer"].awaitText(t, "second OnAdd: mark-last")
	watchers["sharedinformer late"].awaitText(t, "late   OnAdd: mark-last")
	watchers["pipeline"].awaitText(t, "first  OnAdd: mark-last")
	watchers["pipeline"].awaitText(t, "second OnAdd: mark-last")
	byLabel.awaitText(t, "DELETED : nettool")
	wantAnswers(`[]`)
	phase("all programs at the end")

	truth := map[string][]string{}
	for _, pod := range []string{"nettool", "held"} {
		t.Run(pod, func(t *testing.T) { testPodEvents(t, watchers, pod) })
		truth[pod] = podEvents(judge.stdout.lines(), "kubectl", pod)
	}
	t.Run("selectors", func(t *testing.T) { testSelectors(t, byLabel, watchers["listwatch field"], truth["nettool"]) })
	t.Run("late", func(t *testing.T) { testLate(t, watchers["sharedinformer late"], truth) })
	delete(watchers, "kubectl, a judge")
	watchers["sharedinformer index"], watchers["listwatch label"] = index, byLabel
	for _, p := range watchers {
		p.interrupt(t)
	}
	phase("end")
	slices.Sort(run)
	if diff := cmp.Diff(names, slices.Compact(run)); diff != "" {
		t.Errorf("programs (-built +run):\n%s", diff)
	}
}

// testPodEvents compares the events that each program printed for a pod with kubectl's.
func testPodEvents(t *testing.T, watchers map[string]*program, pod string) {
	events := func(program, printer string) []string {
		return podEvents(watchers[program].stdout.lines(), printer, pod)
	}
	truth := events("kubectl, a judge", "kubectl")
	if pod == "nettool" {
		// Other events may happen in between.
		if n := len(truth); n < 4 || truth[0] != "Added Pending" || !slices.Contains(truth, "Updated Running") ||
			truth[n-1] != "Deleted Running" {
			t.Fatalf("kubectl saw\n%s", strings.Join(truth, "\n"))
		}
	}
	for _, c := range []struct{ program, printer string }{
		{"listwatch", "listwatch"},
		{"listwatch all", "listwatch"},
		{"reflector known", "reflector"},
		{"factory", "factory"},
		{"sharedinformer", "first"},
		{"sharedinformer", "second"},
		{"pipeline", "first"},
		{"pipeline", "second"},
	} {
		if diff := cmp.Diff(truth, events(c.program, c.printer)); diff != "" {
			t.Errorf("%s, %s (-kubectl +its events):\n%s", c.program, c.printer, diff)
		}
	}
	var withoutPhases []string
	for _, event := range truth {
		what, _, _ := strings.Cut(event, " ")
		withoutPhases = append(withoutPhases, what)
	}
	for _, program := range []string{"watchdog", "fleet"} {
		if diff := cmp.Diff(withoutPhases, events(program, program)); diff != "" {
			t.Errorf("%s (-kubectl +its events):\n%s", program, diff)
		}
	}

	// Without known objects a deletion is lost, unless another delta of the pod is
	// still queued when it comes. An API server takes milliseconds from a pod's last
	// state to its deletion, so for nettool either may happen.
	unknown, lost := events("reflector", "reflector"), truth[:len(truth)-1]
	if pod == "nettool" && len(unknown) == len(truth) {
		lost = truth
	}
	if diff := cmp.Diff(lost, unknown); diff != "" {
		t.Errorf("reflector without known objects (-kubectl without the deletion +its events):\n%s", diff)
	}
}

// testOnce runs the programs that end by themselves.
func testOnce(t *testing.T, example func(string, ...string) *program, kubectl func(...string) string) {
	clients, everything := example("clients"), example("factory", "-all")
	traps, clusters := example("traps", "-objects=20"), example("fleet", "-l", "app=web")
	tweaked := example("pipeline", "listwatch", "-l=app=none", "-timeout=2s")
	for _, p := range []*program{
		clients, everything, traps, clusters, tweaked,
		example("pipeline"), example("pipeline", "deltafifo"), example("pipeline", "indexer"),
		example("pipeline", "listener", "-every=40ms"),
	} {
		p.finish(t)
		if p.stdout.String() == "" {
			t.Errorf("%s printed nothing", p.name)
		}
	}

	clients.wantInOrder(t, "# config maps\n", "kube-root-ca.crt: ca.crt, ", "# a deployment from a manifest\n",
		"created Deployment default/watershed-example\n*v1.Deployment: Deployment, image nginx:1.18-alpine\n"+
			"*unstructured.Unstructured: Deployment, replicas 1\ndeleted Deployment default/watershed-example\n",
		"# what the cluster serves\nNAME ")
	if out := kubectl("get", "deployments", "-o", "name"); strings.Contains(out, "watershed-example") {
		t.Error("clients left its deployment behind")
	}
	_, table, _ := strings.Cut(clients.stdout.String(), "NAME ")
	if diff := cmp.Diff(rows(kubectl("api-resources"))[1:], rows(table)[1:]); diff != "" {
		t.Errorf("resources (-kubectl +clients):\n%s", diff)
	}

	testEverything(t, everything, strings.Count(kubectl("get", "clusterroles", "-o", "name"), "\n"))
	version := kubectl("get", "pod", "web", "-o", "jsonpath={.metadata.resourceVersion}")
	want := []string{
		"CLUSTER STATE RESOURCES OBJECTS REASON", "examples live 3/3 N/N", "", "CLUSTER OBJECT VERSION",
		"examples default/web " + version,
	}
	if diff := cmp.Diff(want,
		rows(regexp.MustCompile(`\d+/\d+ *\n`).ReplaceAllString(clusters.stdout.String(), "N/N\n"))); diff != "" {
		t.Errorf("fleet (-want +printed):\n%s", diff)
	}

	testTweak(t, tweaked)
	testTraps(t, traps)
	if out := kubectl("get", "namespace", "watershed-example", "--ignore-not-found", "-o",
		"jsonpath={.metadata.deletionTimestamp}{.metadata.name}"); out == "watershed-example" {
		t.Error("traps left its namespace behind")
	}
}

var measured = regexp.MustCompile(`(?m)^(before|running|running again|stopped): +(\d+) objects, heap +(\d+) MiB$`)

// testEverything checks that factory -all prints the resources in the order of their
// names, and how many cluster roles there are.
func testEverything(t *testing.T, p *program, roles int) {
	all := rows(p.stdout.String())
	if len(all) < 10 || all[0] != "RESOURCE OBJECTS VERSION" || !strings.HasPrefix(all[len(all)-1], "# runs ") {
		t.Fatalf("%s printed\n%s", p.name, p.stdout.String())
	}
	var names []string
	for _, row := range all[1 : len(all)-1] {
		name, objects, _ := strings.Cut(row, " ")
		names = append(names, name)
		if name == "clusterroles.rbac.authorization.k8s.io" && !strings.HasPrefix(objects, strconv.Itoa(roles)+" ") {
			t.Errorf("%s printed %q, and there are %d", p.name, row, roles)
		}
	}
	if !slices.IsSorted(names) || !slices.Contains(names, "clusterroles.rbac.authorization.k8s.io") {
		t.Errorf("%s printed the resources %q", p.name, names)
	}
}

func testTraps(t *testing.T, p *program) {
	text := p.stdout.String()
	p.wantInOrder(t, "# an object has apiVersion and kind", "*v1.Namespace ", "*unstructured.Unstructured ",
		"*v1.PartialObjectMetadata ", "*wire.Object ",
		"# a stopped informer keeps no objects", "\nbefore: ", "\nrunning: ", "\nstopped: ", "\nrunning again: ",
		"\nstopped: ")
	if n := strings.Count(text, "apiVersion v1, kind Namespace\n"); n != 4 {
		t.Errorf("%d of four ways to read a namespace say what it is", n)
	}
	all := measured.FindAllStringSubmatch(text, -1)
	if len(all) != 5 {
		t.Fatalf("traps measured %d times", len(all))
	}
	before, _ := strconv.Atoi(all[0][3])
	for _, m := range all {
		heap, _ := strconv.Atoi(m[3])
		// 20 objects of half a megabyte are 10 MB.
		if running := strings.HasPrefix(m[1], "running"); running != (m[2] == "20") || running != (heap >= before+8) ||
			!running && heap > before+2 {
			t.Errorf("%s, and before there were %d MiB", m[0], before)
		}
	}
}

// rows returns a table's lines with one space between the columns.
func rows(table string) []string {
	var all []string
	for line := range strings.Lines(table) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

// indexOf returns the address of the label index.
func indexOf(t *testing.T, p *program) string {
	t.Helper()
	p.awaitText(t, "answering at ")
	_, rest, _ := strings.Cut(p.stdout.String(), "answering at ")
	address, _, _ := strings.Cut(rest, "/?app")
	return address
}

// wantAnswer repeats a request until the response is right, because the copy lags
// behind the cluster.
func wantAnswer(t *testing.T, url, want string) {
	t.Helper()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	var got string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !json.Valid(body) {
			t.Fatalf("GET %s: %v: %q", url, err, body)
		}
		if got = strings.TrimSpace(string(body)); got == want {
			return
		}
	}
	t.Errorf("GET %s: %s, want %s", url, got, want)
}
