// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
)

var (
	loadsFlag = flag.Int("loads", 1, "how many random loads TestLoads runs")
	loadsFor  = flag.Duration("loads-for", 8*time.Second, "how long TestLoads changes the objects of a load")
	loadsSeed = flag.Uint64("loads-seed", 0, "the seed of the first load of TestLoads, 0 for a random one")
)

const (
	// mostLists is how often a resource may be listed in ten minutes.
	mostLists = 5
	// loadSettling is how long everything may take to be current if it fits.
	loadSettling = 2 * time.Minute
)

// TestLoads serves random clusters with a memory limit: some fit and some do not. The process
// must stay within its limit and list nothing over and over. Small resources must stay current
// whatever the large ones need, and if everything fits, everything must be current.
func TestLoads(t *testing.T) {
	if testing.Short() {
		t.Skip("reads hundreds of megabytes: not in short mode")
	}
	seed := *loadsSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	for i := range *loadsFlag {
		l := newLoad(seed+uint64(i), i%2 == 1)
		t.Run(fmt.Sprint(l.Seed), func(t *testing.T) { runLoad(t, l) })
	}
}

// newLoad returns a random load. One that fits needs less than two fifths of the limit, and one
// that does not between the limit and its double.
func newLoad(seed uint64, fits bool) *load {
	r := rand.New(rand.NewPCG(seed, 0))
	l := &load{Seed: seed, Fits: fits, Limit: 256 + 64*r.IntN(5), Churn: r.IntN(4 << 20)}
	needed := (0.1 + 0.3*r.Float64()) * float64(l.Limit<<20)
	if !fits {
		needed = (1 + r.Float64()) * float64(l.Limit<<20)
	}
	l.Clusters = make([]loadCluster, 1+r.IntN(4))
	weights, sum := make([]float64, 1+r.IntN(6)), 0.0
	for i := range weights {
		weights[i] = 0.1 + r.Float64()
		sum += weights[i]
	}
	for i, weight := range weights {
		size := int(1024 * math.Pow(1000, r.Float64())) // from 1 KB to 1 MB
		x := loadResource{
			Name:  fmt.Sprintf("r%d", i),
			Size:  size,
			Count: 1 + int(needed*weight/sum)/size,
			Plain: fits && r.IntN(4) == 0,
		}
		c := &l.Clusters[r.IntN(len(l.Clusters))]
		c.Resources = append(c.Resources, x)
	}
	for i := range l.Clusters {
		if c := &l.Clusters[i]; len(c.Resources) == 0 {
			c.Resources = []loadResource{{Name: "few", Count: 3, Size: 2 << 10}}
		}
	}
	return l
}

// loadRun is a load that is served to a process.
type loadRun struct {
	t         *testing.T
	load      *load
	addresses []string
	process   *program.Process
	client    *http.Client
	largest   int64 // RSS in bytes
}

func runLoad(t *testing.T, l *load) {
	t.Log(l)
	x := &loadRun{t: t, load: l, addresses: startLoad(t, l)}
	dir := t.TempDir()
	k := clientcmdapi.NewConfig()
	for i, address := range x.addresses {
		name := fmt.Sprintf("c%d", i)
		k.Clusters[name] = &clientcmdapi.Cluster{Server: "http://" + address}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "any"}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	path := filepath.Join(dir, "kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(*k, path))
	p, err := program.Start(t.Context(), dir, "--kubeconfig", path, "--memory-limit", fmt.Sprint(l.Limit),
		"--max-cluster-memory", fmt.Sprint(l.Limit))
	expect.NoError(t, err)
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Log(p.Tail())
		}
	})
	x.process = p
	x.client, err = rest.HTTPClientFor(p.Config())
	expect.NoError(t, err)
	began := time.Now()
	x.observe(time.Now().Add(*loadsFor), func() bool { return false })
	if l.Fits {
		x.expectComplete(began)
	}
	x.expectBeats()
	x.expectLists(time.Since(began))
	limit := int64(l.Limit) << 20
	t.Logf("largest RSS %d MiB with a limit of %d MiB: %+d MiB", x.largest>>20, l.Limit, (x.largest-limit)>>20)
	if x.largest > limit+max(limit/10, 64<<20) {
		t.Errorf("the process took %d MiB of memory, with a limit of %d", x.largest>>20, l.Limit)
	}
}

// startLoad serves the clusters of a load in another process, and returns their addresses.
func startLoad(t *testing.T, l *load) (addresses []string) {
	text, err := json.Marshal(l)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), loadVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // it ends with this process
	expect.NoError(t, err)
	out, err := cmd.StdoutPipe()
	expect.NoError(t, err)
	expect.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		cancel()
		_ = cmd.Wait() // it was killed
	})
	for lines := bufio.NewScanner(out); len(addresses) < len(l.Clusters) && lines.Scan(); {
		addresses = append(addresses, lines.Text())
	}
	if len(addresses) < len(l.Clusters) {
		t.Fatal("the clusters of the load have not started")
	}
	return addresses
}

// observe reads the memory of the process until a time, or until done returns true.
func (x *loadRun) observe(until time.Time, done func() bool) {
	for ; time.Now().Before(until) && !done(); time.Sleep(100 * time.Millisecond) {
		select {
		case <-x.process.Ended:
			x.t.Fatalf("the process ended: %s", x.process.Tail())
		default:
		}
		rss, err := (&harness.Process{Name: "serve", PID: x.process.Cmd.Process.Pid}).Memory()
		expect.NoError(x.t, err)
		x.largest = max(x.largest, int64(rss))
	}
}

// expectComplete checks that everything is current, soon enough after the beginning.
func (x *loadRun) expectComplete(began time.Time) {
	problem := ""
	x.observe(began.Add(loadSettling), func() bool {
		problem = ""
		for i := range x.addresses {
			for name, want := range x.state(i, true).Objects {
				if got := x.versions(i, name); !maps.Equal(got, want) {
					problem = fmt.Sprintf("%s of cluster %d: %d objects are mirrored, want %d, or some are not current",
						name, i, len(got), len(want))
				}
			}
		}
		return problem == ""
	})
	if problem != "" {
		x.t.Error(problem)
	}
	x.t.Logf("all is current %s after the start", time.Since(began).Round(time.Second))
}

// expectBeats checks that the small resources are current.
func (x *loadRun) expectBeats() {
	for i := range x.addresses {
		var got, want map[string]string
		x.observe(time.Now().Add(patience), func() bool {
			got, want = x.versions(i, beats.Name), x.state(i, true).Objects[beats.Name]
			return maps.Equal(got, want)
		})
		if !maps.Equal(got, want) {
			x.t.Errorf("the beats of cluster %d are not current: %v, want %v", i, got, want)
		}
	}
	_, text := x.get("https://" + x.process.Address + "/clusters")
	if problems := string(text); strings.Contains(problems, `"`+beats.Name+"."+loadGroup+`"`) {
		x.t.Errorf("the beats are not current: %s", problems)
	}
	for line := range strings.Lines(x.process.Log.String()) {
		if strings.Contains(line, beats.Name) && strings.Contains(line, "no memory") {
			x.t.Errorf("the beats had no memory: %s", line)
		}
	}
}

// expectLists checks that no resource was listed too often.
func (x *loadRun) expectLists(during time.Duration) {
	most := mostLists * (1 + int(during/(10*time.Minute)))
	for i := range x.addresses {
		lists := x.state(i, true).Lists
		x.t.Logf("lists of cluster %d: %v", i, lists)
		for name, n := range lists {
			if n > most {
				x.t.Errorf("%s of cluster %d was listed %d times in %s", name, i, n, during.Round(time.Second))
			}
		}
	}
}

// state returns the state of a cluster. With pause it does not change any more.
func (x *loadRun) state(cluster int, pause bool) (is clusterState) {
	_, text := x.get(fmt.Sprintf("http://%s/state?pause=%t", x.addresses[cluster], pause))
	expect.NoError(x.t, json.Unmarshal(text, &is))
	return is
}

// versions returns the versions of the objects of a resource in the copy, by name.
func (x *loadRun) versions(cluster int, resource string) map[string]string {
	status, text := x.get(fmt.Sprintf("https://%s/clusters/c%d/apis/%s/v1/%s", x.process.Address, cluster, loadGroup,
		resource))
	if status != http.StatusOK {
		return nil
	}
	var list metav1.PartialObjectMetadataList
	expect.NoError(x.t, json.Unmarshal(text, &list))
	all := map[string]string{}
	for i := range list.Items {
		all[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return all
}

// get returns the metadata of what is at an address, or all of it if it is not an object.
func (x *loadRun) get(url string) (int, []byte) {
	r, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, url, http.NoBody)
	expect.NoError(x.t, err)
	if strings.Contains(url, loadGroup) {
		r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	}
	resp, err := x.client.Do(r)
	expect.NoError(x.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	expect.NoError(x.t, err)
	return resp.StatusCode, text
}
