// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var (
	failoverKills    = flag.Int("failover.kills", 2, "how often TestFailover kills a replica")
	failoverRestarts = flag.Int("failover.restarts", 2, "how often TestFailover ends a replica with SIGTERM")
	failoverWatches  = flag.Int("failover.watches", 50, "how many watches TestFailover has")
	failoverRate     = flag.Int("failover.rate", 40, "how many requests TestFailover sends in a second")
	failoverReady    = flag.Duration("failover.ready", time.Second,
		"how long both replicas are ready before TestFailover ends the next one")
	failoverGroup = flag.Bool("failover.group", false, "make the replicas of TestFailover a replica group")
)

// TestFailover kills one of two replicas behind a load balancer, again and again, and then ends each in
// order, under watches and requests of client-go. No watch misses an event, and in the end each has the
// state of the API server. It prints how many requests failed after one retry, the longest silence of a
// watch whose resource changes five times a second, and how many watches had to list again.
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
	t        *testing.T
	cluster  *kubetest.Cluster
	client   *kubernetes.Clientset
	balancer *balancer
	dirs     [2]string
	flags    [2][]string
	replicas [2]*replicaProcess
	load     *failoverLoad
}

func runFailover(t *testing.T, c *kubetest.Cluster, files bool) {
	direct := c.Config()
	direct.QPS = -1
	f := &failover{t: t, cluster: c, client: kubernetes.NewForConfigOrDie(direct)}
	for i := range f.replicas {
		f.dirs[i] = t.TempDir()
		f.flags[i] = []string{
			"--kubeconfig", c.Kubeconfig(), "--context", clusterName,
			"--shutdown-delay", "1s", "--shutdown-grace", "5s",
		}
		if files {
			f.flags[i] = append(f.flags[i], "--data-dir", filepath.Join(f.dirs[i], "data"))
		}
		if *failoverGroup {
			f.flags[i] = append(f.flags[i], "--pass-through", "--replica-group", "failover",
				"--group-cluster", clusterName, "--group-namespace", "default", "--group-listen", "127.0.0.1:0")
		}
	}
	f.balancer = newBalancer(t)
	f.start(0)
	// The second replica has the authority of the first: clients trust both.
	authority, err := os.ReadFile(filepath.Join(f.replicas[0].dir, "authority.pem"))
	expect.NoError(t, err)
	expect.NoError(t, os.MkdirAll(filepath.Join(f.dirs[1], "state"), 0o700))
	expect.NoError(t, os.WriteFile(filepath.Join(f.dirs[1], "state", "authority.pem"), authority, 0o600))
	f.start(1)
	t.Cleanup(func() {
		for _, p := range f.replicas {
			p.stop()
			if t.Failed() {
				t.Log(p.tail())
			}
		}
	})
	f.awaitReady()

	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	f.prepare()
	writing.Go(func() { f.write(ctx) })
	f.load = startFailoverLoad(t, f.balancer.config(c, f.replicas[0].ca), *failoverWatches, *failoverRate)
	f.balancer.report(t, "at the start")
	phases := []struct {
		name  string
		times int
		end   func(*replicaProcess)
	}{
		{"kills", *failoverKills, func(p *replicaProcess) { _ = p.cmd.Process.Kill(); <-p.ended }},
		{"restarts in order", *failoverRestarts, func(p *replicaProcess) {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			<-p.ended
		}},
	}
	for _, phase := range phases {
		f.load.reset()
		for i := range phase.times {
			which := i % 2
			time.Sleep(*failoverReady) // the period of the measurement
			f.load.disturb()
			phase.end(f.replicas[which])
			f.start(which)
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

// start starts a replica and adds it to the load balancer.
func (f *failover) start(which int) {
	p, err := startServe(f.t.Context(), f.dirs[which], f.flags[which]...)
	expect.NoError(f.t, err)
	f.replicas[which] = p
	f.balancer.set(which, p.address, p.ca)
}

// awaitReady waits until the load balancer uses both replicas.
func (f *failover) awaitReady() {
	f.t.Helper()
	expect.Eventually(f.t, patience, func() error {
		if n := f.balancer.readyCount(); n < 2 {
			return fmt.Errorf("%d replicas are ready", n)
		}
		return nil
	})
}

const (
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

// write counts in a config map, five times a second, until ctx ends.
func (f *failover) write(ctx context.Context) {
	ticker := time.NewTicker(counterPeriod)
	defer ticker.Stop()
	maps := f.client.CoreV1().ConfigMaps(busyNamespace)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			m, err := maps.Get(ctx, counterName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(m.Data["n"])
			if err != nil {
				return err
			}
			m.Data["n"] = strconv.Itoa(n + 1)
			_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
			return err
		})
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
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
