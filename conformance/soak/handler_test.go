// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
)

// handlerVariable makes the test binary run a library program instead of tests: its value is
// the folder of the program.
const handlerVariable = "WATERSHED_SOAK_HANDLER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(handlerVariable); folder != "" {
		if err := runHandler(context.Background(), folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runHandler runs an informer with files, whose handler writes what it receives to a file of
// its own, a line for each call.
func runHandler(ctx context.Context, folder string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(folder, "kubeconfig"))
	if err != nil {
		return err
	}
	cluster, err := kube.FromConfig(cfg, nil)
	if err != nil {
		return err
	}
	d, err := disk.Open(filepath.Join(folder, "data"), nil)
	if err != nil {
		return err
	}
	record, err := os.OpenFile(filepath.Join(folder, "record"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// A line is one write, which a kill does not divide.
	write := func(what string, o *corev1.ConfigMap) {
		if _, err := fmt.Fprintf(record, "%s %s %s\n", what, o.Name, o.ResourceVersion); err != nil {
			panic(err)
		}
	}
	write("START", &corev1.ConfigMap{})
	i, err := watershed.New(cluster, &watershed.Options[*corev1.ConfigMap]{
		Namespace: metav1.NamespaceDefault, Memory: watershed.Packed, Disk: d,
	})
	if err != nil {
		return err
	}
	i.Handle(watershed.Handler[*corev1.ConfigMap]{
		Add: func(o *corev1.ConfigMap, initial bool) {
			if initial {
				write("INITIAL", o)
			} else {
				write("ADD", o)
			}
		},
		Update: func(_, now *corev1.ConfigMap) { write("UPDATE", now) },
		Delete: func(last *corev1.ConfigMap, _ bool) { write("DELETE", last) },
	})
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	running.Go(func() {
		if i.WaitForSync(ctx) == nil {
			write("SYNCED", &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: strconv.FormatUint(i.Connection().Lists, 10)},
			})
		}
	})
	err = i.Run(ctx)
	running.Wait()
	return err
}

// TestRestarts_handler kills a library program with files at random moments, while objects
// are written as fast as the API server accepts it. What the program's handler has received
// since its last start leads to the state of etcd. In each run the handler first receives
// every object as an initial one, each of its versions is one that the server had, and the
// versions of an object grow. The program never lists.
func TestRestarts_handler(t *testing.T) {
	k := newKillTest(t)
	rng := rand.New(rand.NewPCG(k.seed, 4))
	folder := t.TempDir()
	kubeconfig, err := os.ReadFile(k.cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kubeconfig"), kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, first, oracle := k.observe(t)
	t.Setenv(handlerVariable, folder)
	start := func() *child {
		p, err := startChild(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := start()
	record := handlerRecord{path: filepath.Join(folder, "record"), known: map[string]bool{}}
	for _, o := range first.Items {
		record.known[o.Name+" "+o.ResourceVersion] = true
	}
	record.await(t, p, k.cluster)
	expect.Soon(t, "the first state is in the files", func() bool {
		return contains(t, filepath.Join(folder, "data"), "default/first")
	})
	lists, _ := k.log.lists(t)
	writers := startScribblers(ctx, k.client, k.seed)
	for range *restarts {
		time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second)))) // also before it has caught up
		p.kill()
		p = start()
	}
	writers.end()
	defer p.kill()
	record.await(t, p, k.cluster)
	for _, e := range oracle.events() {
		_, object, _ := strings.Cut(e, " ")
		record.known[object] = true
	}
	record.check(t)
	t.Logf("%d writes, %d lines of the handler", writers.writes.Load(), record.lines)
	judgeLists(t, k.log, lists)
}

// contains reports whether a file below a folder contains a text.
func contains(t *testing.T, folder, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(text))
		return err
	})
	return found && err == nil
}

// handlerRecord is the file of the handler.
type handlerRecord struct {
	path string
	// known are the names and versions of the objects that the server had.
	known map[string]bool
	lines int
}

// read returns the versions by name that the lines since the last start lead to. It calls
// each with every line.
func (r *handlerRecord) read(each func(what, name, version string)) (map[string]string, error) {
	f, err := os.Open(r.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	state := map[string]string{}
	r.lines = 0
	for scan := bufio.NewScanner(f); scan.Scan(); r.lines++ {
		what, rest, _ := strings.Cut(scan.Text(), " ")
		name, version, _ := strings.Cut(rest, " ")
		switch what {
		case "SYNCED":
		case "START":
			state = map[string]string{}
		case "DELETE":
			delete(state, name)
		default:
			state[name] = version
		}
		each(what, name, version)
	}
	return state, nil
}

// await waits until the record leads to a state.
func (r *handlerRecord) await(t *testing.T, p *child, c *kubetest.Cluster) {
	t.Helper()
	diff := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := p.running(); err != nil {
			t.Fatal(err)
		}
		state, err := r.read(func(_, _, _ string) {})
		if err != nil {
			diff = err.Error()
			continue
		}
		// etcd may still apply a write whose request has ended with its writer.
		want, err := etcdVersions(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if diff = differ(state, want); diff == "" {
			return
		}
	}
	t.Fatal(diff)
}

// differ returns how the versions that a handler has received differ from those in etcd.
func differ(state, want map[string]string) string {
	for name, version := range want {
		if state[name] != version {
			return fmt.Sprintf("the handler has %s at %q, etcd at %s", name, state[name], version)
		}
	}
	if len(state) != len(want) {
		return fmt.Sprintf("the handler has %d objects, etcd %d", len(state), len(want))
	}
	return ""
}

// check checks the lines of all runs.
func (r *handlerRecord) check(t *testing.T) {
	t.Helper()
	last, initial, runs, synced := map[string]uint64{}, true, 0, 0
	_, err := r.read(func(what, name, version string) {
		switch what {
		case "START":
			last, initial = map[string]uint64{}, true
			runs++
			return
		case "SYNCED": // with the number of lists
			synced++
			if (name == "0") != (runs > 1) {
				t.Errorf("run %d has read the whole state %s times", runs, name)
			}
			return
		}
		n, err := strconv.ParseUint(version, 10, 64)
		old, had := last[name]
		switch {
		case err != nil:
			t.Errorf("%s %s has version %q", what, name, version)
		case what != "DELETE" && !r.known[name+" "+version]:
			t.Errorf("%s %s at %s, which the server never had", what, name, version)
		case what == "INITIAL" && (!initial || had), what == "ADD" && had, what == "UPDATE" && (!had || n <= old),
			what == "DELETE" && !had:
			t.Errorf("%s %s at %s after %d", what, name, version, old)
		}
		initial = initial && what == "INITIAL"
		if last[name] = n; what == "DELETE" {
			delete(last, name)
		}
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d runs have synced", synced, runs)
}
