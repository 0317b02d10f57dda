// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var (
	failoverKills    = flag.Int("failover.kills", 2, "how often TestFailover kills a replica")
	failoverRestarts = flag.Int("failover.restarts", 2, "how often TestFailover ends a replica with SIGTERM")
	failoverWatches  = flag.Int("failover.watches", 50, "how many watches TestFailover has")
	failoverRate     = flag.Int("failover.rate", 40, "how many requests TestFailover sends in a second")
	failoverBinary   = flag.String("failover.binary", "",
		"the build of watershed that TestFailover upgrades (default this source with another version)")
	failoverReady = flag.Duration("failover.ready", time.Second,
		"how long both replicas are ready before TestFailover ends the next one")
	failoverGroup = flag.Bool("failover.group", false, "make the replicas of TestFailover a replica group")
)

// TestFailover replaces two replicas of another build behind a load balancer, kills one after the other,
// and then ends each in order, under watches and requests of client-go. No watch misses an event, and in
// the end each has the state of the API server. It prints how many requests failed after one retry, the
// longest silence of a watch whose resource changes five times a second, and how many watches had to list
// again.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	c := kubetest.Start(t, &kubetest.Options{Name: clusterName})
	t.Run("memory", func(t *testing.T) { runFailover(t, c, false) })
	t.Run("files", func(t *testing.T) { runFailover(t, c, true) })
}

// failover is a run of TestFailover.
type failover struct {
	*pair
	client *kubernetes.Clientset
	load   *failoverLoad
}

func runFailover(t *testing.T, c *kubetest.Cluster, files bool) {
	direct := c.Config()
	direct.QPS = -1
	f := &failover{pair: newPair(t), client: kubernetes.NewForConfigOrDie(direct)}
	start := func(which int, binary string) {
		flags := []string{
			"--kubeconfig", c.Kubeconfig(), "--context", clusterName,
			"--shutdown-delay", "1s", "--shutdown-grace", "5s",
		}
		if files {
			flags = append(flags, "--data-dir", filepath.Join(f.dirs[which], "data"))
		}
		if *failoverGroup {
			flags = append(flags, "--pass-through", "--replica-group", "failover",
				"--group-cluster", clusterName, "--group-namespace", "default", "--group-listen", "127.0.0.1:0")
		}
		f.start(which, binary, nil, flags...)
	}
	own, err := program.Binary()
	expect.NoError(t, err)
	former, err := formerBinary()
	expect.NoError(t, err)
	for _, binary := range []string{former, own} {
		version, err := exec.Command(binary, "version").CombinedOutput()
		expect.NoError(t, err)
		t.Logf("%s: %s", filepath.Base(binary), version)
	}
	start(0, former)
	start(1, former)
	f.awaitReady()

	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	f.prepare()
	writing.Go(func() { f.write(ctx) })
	config := f.balancer.config(f.at(0), "/clusters/"+clusterName)
	config.BearerToken = direct.BearerToken
	f.load = startFailoverLoad(t, config, *failoverWatches, *failoverRate)
	f.balancer.report(t, "at the start")
	for _, phase := range []struct {
		name  string
		times int
		end   func(*program.Process)
	}{
		{"upgrades in order", len(f.replicas), (*program.Process).Stop},
		{"kills", *failoverKills, (*program.Process).Kill},
		{"restarts in order", *failoverRestarts, (*program.Process).Stop},
	} {
		f.load.reset()
		for i := range phase.times {
			which := i % 2
			time.Sleep(*failoverReady) // the period of the measurement
			f.load.disturb()
			phase.end(f.at(which))
			start(which, own)
			f.awaitReady()
			t.Logf("%s %d: replica %d, %s", phase.name, i+1, which, f.load)
		}
		// The effects of the last end are part of the result.
		time.Sleep(min(*failoverReady, 5*time.Second))
		t.Logf("failover: %d %s, %d watches, files=%t: %s", phase.times, phase.name, *failoverWatches, files, f.load)
		t.Logf("requests for watches failed: %v", f.load.refusals())
	}
	cancel()
	writing.Wait()
	f.load.finish(f.newest())
}

// formerBinary returns the path of another build of the program: the one of the flag, or this source with
// another version.
var formerBinary = sync.OnceValues(func() (string, error) {
	if *failoverBinary != "" {
		return *failoverBinary, nil
	}
	source, err := filepath.Abs(filepath.Join("..", "..", "cmd", "watershed", "internal", "build", "build.go"))
	if err != nil {
		return "", err
	}
	return program.BuildChanged("former", source, "return describe(info)", `return "former " + describe(info)`)
})

const (
	clusterName = "real"

	busyNamespace, quietNamespace = "failover-busy", "failover-quiet"
	counterName                   = "counter"
	counterPeriod                 = 200 * time.Millisecond
)

// prepare creates the objects that are watched.
func (f *failover) prepare() {
	for _, namespace := range []string{busyNamespace, quietNamespace} {
		_, err := f.client.CoreV1().Namespaces().Create(f.t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err != nil && !isAlreadyExists(err) {
			f.t.Fatal(err)
		}
		_, err = f.client.CoreV1().ConfigMaps(namespace).Create(f.t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: counterName}, Data: map[string]string{"n": "0"}},
			metav1.CreateOptions{})
		if err != nil && !isAlreadyExists(err) {
			f.t.Fatal(err)
		}
	}
}

// write counts in a config map, five times a second, until ctx ends. Nobody else writes it.
func (f *failover) write(ctx context.Context) {
	ticker := time.NewTicker(counterPeriod)
	defer ticker.Stop()
	for n := f.newest() + 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_, err := f.client.CoreV1().ConfigMaps(busyNamespace).Patch(ctx, counterName, types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil {
			f.t.Error(err)
		}
	}
}

// newest returns the number that was written last.
func (f *failover) newest() int {
	m, err := f.client.CoreV1().ConfigMaps(busyNamespace).Get(f.t.Context(), counterName, metav1.GetOptions{})
	expect.NoError(f.t, err)
	n, err := strconv.Atoi(m.Data["n"])
	expect.NoError(f.t, err)
	return n
}
