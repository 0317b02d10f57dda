// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const clusterName = "real"

// comparedCluster is a cluster with objects of every kind in which nothing changes any more, and
// the subject that is compared with it.
type comparedCluster struct {
	dir     string
	cluster *kubetest.Cluster
	client  *kubernetes.Clientset
	dynamic *dynamic.DynamicClient

	// server is kube-apiserver, and copy the subject that is compared with it.
	server, copy *subject
	process      *program.Process // nil if copy is the server too
	// passing is a replica with --pass-through, with the token of a user. It is nil if copy
	// is the server too.
	passing        *subject
	passingProcess *program.Process
	catalogue      *catalogue
	uids           map[string]string // see expand
}

// newComparedCluster fills a cluster and starts a replica of it. It logs how long that took.
func newComparedCluster(ctx context.Context, logf func(string, ...any)) (_ *comparedCluster, err error) {
	start := time.Now()
	w := &comparedCluster{}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "replica-"); err != nil {
		return nil, err
	}
	if w.cluster, err = kubetest.New(ctx, &kubetest.Options{Name: clusterName, Nodes: 2}); err != nil {
		return nil, err
	}
	if w.client, err = kubernetes.NewForConfig(w.cluster.Config()); err != nil {
		return nil, err
	}
	if w.dynamic, err = dynamic.NewForConfig(w.cluster.Config()); err != nil {
		return nil, err
	}
	up := time.Now()
	if err := w.populate(ctx, logf); err != nil {
		return nil, fmt.Errorf("populate: %w", err)
	}
	if err := w.settle(ctx); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	settled := time.Now()
	if w.server, err = newSubject("server", w.cluster.Config(), ""); err != nil {
		return nil, err
	}
	if w.catalogue, err = newCatalogue(ctx, w.server); err != nil {
		return nil, err
	}
	if w.uids, err = w.identities(ctx); err != nil {
		return nil, err
	}
	if err := w.startCopy(ctx); err != nil {
		return nil, err
	}
	logf("cluster up in %.1fs, populated in %.1fs, replica ready in %.1fs",
		up.Sub(start).Seconds(), settled.Sub(up).Seconds(), time.Since(settled).Seconds())
	return w, nil
}

func (w *comparedCluster) startCopy(ctx context.Context) (err error) {
	if os.Getenv(subjectVariable) == "server" {
		w.copy, err = newSubject("server again", w.cluster.Config(), "")
		return err
	}
	if w.process, err = startReplica(ctx, w.dir, w.cluster.Kubeconfig(), clusterName); err != nil {
		return err
	}
	if w.copy, err = newSubject("replica", w.process.Config(), "/clusters/"+clusterName); err != nil {
		return err
	}
	if err := w.startPassing(ctx); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return expect.Until(soon, func() error {
		return errors.Join(w.caughtUp(soon, w.copy, w.process), w.caughtUp(soon, w.passing, w.passingProcess))
	})
}

// startPassing starts the replica that passes requests on.
func (w *comparedCluster) startPassing(ctx context.Context) (err error) {
	args := []string{"--kubeconfig", w.cluster.Kubeconfig(), "--context", clusterName, "--pass-through"}
	for _, pattern := range mirrored {
		args = append(args, "--resources", pattern)
	}
	if w.passingProcess, err = program.Start(ctx, filepath.Join(w.dir, "passing"), args...); err != nil {
		return err
	}
	config := w.passingProcess.Config()
	config.BearerToken = w.cluster.Config().BearerToken
	w.passing, err = newSubject("replica with pass-through", config, "/clusters/"+clusterName)
	return err
}

// caughtUp returns an error while a replica does not serve all mirrored objects from its copy.
func (w *comparedCluster) caughtUp(ctx context.Context, s *subject, process *program.Process) error {
	for _, path := range w.catalogue.paths() {
		a := s.send(ctx, request{Method: "GET", URI: path + "?limit=1", Accept: "application/json"})
		if a.err != nil || a.code != 200 || a.header.Get("Watershed-Age") == "" {
			return fmt.Errorf("%s of the %s: %d %w %s; %s", path, s.name, a.code, a.err, a.body, process.Tail())
		}
	}
	return nil
}

func (w *comparedCluster) close() {
	for _, p := range []*program.Process{w.process, w.passingProcess} {
		if p != nil {
			p.Stop()
		}
	}
	for _, s := range []*subject{w.server, w.copy, w.passing} {
		if s != nil {
			s.client.CloseIdleConnections()
		}
	}
	if w.cluster != nil {
		w.cluster.Close()
	}
	_ = os.RemoveAll(w.dir)
}

// settle waits until the controllers have nothing left to do, and stops them. Then the
// API server itself writes only its lease.
func (w *comparedCluster) settle(ctx context.Context) error {
	if err := expect.Until(ctx, func() error { return w.busy(ctx) }); err != nil {
		return err
	}
	for _, p := range []*kubetest.Process{w.cluster.ControllerManager, w.cluster.Scheduler, w.cluster.Kwok} {
		p.Kill()
	}
	return w.applyStatus(ctx, filepath.Join("testdata", "population", "80-status.yaml"))
}

// busy returns an error while an object is not in its final state.
func (w *comparedCluster) busy(ctx context.Context) error {
	pods, err := w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	running := map[string]int{}
	for _, p := range pods.Items {
		running[cache.MetaObjectToName(&p).Namespace+"/"+p.Labels["app"]+"/"+string(p.Status.Phase)]++
	}
	for what, n := range map[string]int{
		"shop/web/Running": 3, "stage/web/Running": 1, "shop/db/Running": 2, "shop/agent/Running": 2,
		"shop/elder/Running": 1, "shop/lonely/Running": 1, "shop/migrate/Succeeded": 2, "shop/nowhere/Pending": 1,
	} {
		if running[what] != n {
			return fmt.Errorf("%d of %d %s", running[what], n, what)
		}
	}
	job, err := w.client.BatchV1().Jobs("shop").Get(ctx, "migrate", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if job.Status.CompletionTime == nil {
		return errors.New("job migrate has not completed")
	}
	web, err := w.client.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if web.Status.AvailableReplicas != 3 {
		return fmt.Errorf("%d of 3 pods of deployment web are available", web.Status.AvailableReplicas)
	}
	claim, err := w.client.CoreV1().PersistentVolumeClaims("shop").Get(ctx, "data", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("claim data is %s", claim.Status.Phase)
	}
	return nil
}
