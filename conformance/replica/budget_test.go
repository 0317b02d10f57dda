// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

var (
	budgetFlag   = flag.Int("budget", 192, "the memory limit of TestBudget in MiB")
	budgetFor    = flag.Duration("budget-for", 20*time.Second, "how long TestBudget changes objects")
	budgetNeeded = flag.Float64("budget-needed", 2,
		"how much memory the clusters of TestBudget need, as a multiple of the limit")
)

// podMemory is about what a simulated pod takes in the copy, in bytes.
const podMemory = 900

// TestBudget serves clusters that need more memory than the process may use, while they
// change. The process must stay within its limit, answer requests for the clusters that it
// has, and say which it has not.
func TestBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("reads hundreds of thousands of objects: not in short mode")
	}
	const clusters = 24
	pods := int(*budgetNeeded * float64(*budgetFlag<<20) / podMemory / clusters)
	servers, err := simulated.New(&simulated.Options{Clusters: clusters, Pods: pods})
	expect.NoError(t, err)
	t.Cleanup(servers.Close)
	dir := t.TempDir()
	k := clientcmdapi.NewConfig()
	for i := range clusters {
		c := servers.Cluster(i)
		k.Clusters[c.Name()] = &clientcmdapi.Cluster{
			Server: c.Config().Host, CertificateAuthorityData: c.Config().CAData, TLSServerName: c.Config().ServerName,
		}
		k.AuthInfos[c.Name()] = &clientcmdapi.AuthInfo{Token: c.Config().BearerToken}
		k.Contexts[c.Name()] = &clientcmdapi.Context{Cluster: c.Name(), AuthInfo: c.Name()}
	}
	path := filepath.Join(dir, "kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(*k, path))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := program.Start(ctx, dir, "--kubeconfig", path, "--resources", "pods", "--memory-limit",
		fmt.Sprint(*budgetFlag))
	expect.NoError(t, err)
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Log(p.Tail())
		}
	})
	var churning sync.WaitGroup
	churning.Go(func() { servers.Churn(ctx, 500) })
	b := &budgetTest{t: t, process: p, clusters: clusters}
	b.run(ctx, *budgetFor)
	cancel()
	churning.Wait()
	t.Logf("limit %d MiB, %d clusters with %d pods each; largest RSS %d MiB; %d of %d clusters are complete; %d "+
		"lists answered, %d not", *budgetFlag, clusters, pods, b.largest>>20, b.complete, clusters, b.answered,
		b.refused)
	if limit := int64(*budgetFlag) << 20; b.largest > limit+limit/8+64<<20 {
		t.Errorf("the process took %d MiB of memory, with a limit of %d", b.largest>>20, *budgetFlag)
	}
	for _, want := range b.lacks() {
		t.Error(want)
	}
}

// budgetTest observes a process.
type budgetTest struct {
	t                           *testing.T
	process                     *program.Process
	largest                     int64 // RSS in bytes
	clusters                    int
	complete, answered, refused int
	document                    string
}

// lacks returns what has not been seen yet of a process that needs more memory than it may use.
func (b *budgetTest) lacks() (all []string) {
	if b.complete == 0 || b.complete == b.clusters {
		all = append(all, fmt.Sprintf("%d of %d clusters are complete, want some", b.complete, b.clusters))
	}
	if b.answered == 0 {
		all = append(all, "no list was answered")
	}
	// The pressure may rise by several levels between two looks at the memory: the log has the last one.
	log := b.process.Log.String()
	if !slices.ContainsFunc([]string{"the caches are reduced", "the history is reduced",
		"no further resources are mirrored", "resources with new objects are not kept up to date"},
		func(effect string) bool { return strings.Contains(log, effect) }) {
		all = append(all, "the log does not say what the pressure of memory changes")
	}
	if !strings.Contains(log, "no memory for another resource") {
		all = append(all, "the log does not say what is not mirrored")
	}
	if !strings.Contains(b.document, "no memory for another") {
		all = append(all, "/clusters does not say why clusters are incomplete: "+
			b.document[:min(len(b.document), 2000)])
	}
	return all
}

// run observes the process for some time, and for up to three more minutes while something lacks.
func (b *budgetTest) run(ctx context.Context, during time.Duration) {
	client, err := rest.HTTPClientFor(b.process.Config())
	expect.NoError(b.t, err)
	// The memory is measured ten times a second.
	enough := time.Now().Add(during)
	last := enough.Add(3 * time.Minute)
	for now := time.Now(); now.Before(enough) || now.Before(last) && len(b.lacks()) > 0; now = time.Now() {
		select {
		case <-b.process.Ended:
			b.t.Fatalf("the process ended: %s", b.process.Tail())
		default:
		}
		rss, err := (&harness.Process{Name: "serve", PID: b.process.Cmd.Process.Pid}).Memory()
		expect.NoError(b.t, err)
		b.largest = max(b.largest, int64(rss))
		b.read(ctx, client)
		time.Sleep(100 * time.Millisecond)
	}
}

// read reads the state of all clusters, and a list of one that is complete.
func (b *budgetTest) read(ctx context.Context, client *http.Client) {
	status, body := b.get(ctx, client, "/clusters")
	if status != http.StatusOK {
		b.t.Fatalf("/clusters: %d %s", status, body)
	}
	b.document = string(body)
	var document struct {
		Clusters []struct {
			Name, State       string
			Synced, Resources int
		}
	}
	expect.NoError(b.t, json.Unmarshal(body, &document))
	b.complete = 0
	name := ""
	for _, c := range document.Clusters {
		if c.Resources > 0 && c.Synced == c.Resources {
			b.complete++
			name = c.Name
		}
	}
	if name == "" {
		return
	}
	if status, _ := b.get(ctx, client, "/clusters/"+name+"/api/v1/pods?limit=100"); status == http.StatusOK {
		b.answered++
	} else {
		b.refused++
	}
}

func (b *budgetTest) get(ctx context.Context, client *http.Client, path string) (int, []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+b.process.Address+path, http.NoBody)
	expect.NoError(b.t, err)
	resp, err := client.Do(r)
	expect.NoError(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	expect.NoError(b.t, err)
	return resp.StatusCode, body
}
