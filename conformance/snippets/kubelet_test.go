// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package snippets_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/conformance/snippets"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/podprocess"
)

// podLabel selects the pods that have processes. kwok only pretends that the other pods run.
const podLabel = "app.kubernetes.io/name=watershed"

// kubelet runs the pods of watershed in one cluster as processes of this machine, from the images that
// the stand-in of kind has loaded. It reports a pod as ready once its readiness probe succeeds.
type kubelet struct {
	t        *testing.T
	cluster  *kubetest.Cluster
	client   kubernetes.Interface
	clusters string // the directory of the stand-in of kind
	// forward receives the connections of kubectl port-forward, for the pod that became ready last.
	forward net.Listener
	port    atomic.Value // string; "" before a pod is ready
	pods    map[types.UID]*pod
}

// pod is a pod that was started.
type pod struct {
	*podprocess.Process
	port  string
	ready bool
}

// listenForward reserves the port of a cluster's port-forward.
func listenForward(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // run has closed it
	return l
}

// startKubelet runs the stand-in until the end of the test.
func startKubelet(t *testing.T, c *kubetest.Cluster, clusters string, forward net.Listener) {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{
		t: t, cluster: c, client: client, clusters: clusters, forward: forward, pods: map[types.UID]*pod{},
	}
	k.port.Store("")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { k.run(ctx) })
	running.Go(func() { k.accept(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = forward.Close()
		running.Wait()
	})
}

// run brings the pods of the cluster to the desired state, again and again.
func (k *kubelet) run(ctx context.Context) {
	defer func() {
		for _, p := range k.pods {
			p.Kill()
		}
	}()
	for ctx.Err() == nil {
		pods, err := k.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: podLabel})
		if err == nil {
			for i := range pods.Items {
				err = errors.Join(err, k.sync(ctx, &pods.Items[i]))
			}
		}
		if err != nil && ctx.Err() == nil {
			k.t.Logf("kubelet: %v", err)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// sync brings one pod to its desired state.
func (k *kubelet) sync(ctx context.Context, want *corev1.Pod) error {
	p := k.pods[want.UID]
	switch {
	case want.DeletionTimestamp != nil:
		if p != nil {
			if err := p.Stop(); err != nil {
				return err
			}
			delete(k.pods, want.UID)
		}
		now := int64(0)
		return k.client.CoreV1().Pods(want.Namespace).Delete(ctx, want.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &now})
	case want.Spec.NodeName == "":
		return nil
	case p == nil:
		reason, err := k.start(ctx, want)
		if err != nil || reason != "" {
			return errors.Join(err, k.report(ctx, want, reason))
		}
		return nil
	case !p.ready && p.Ready(ctx, p.port) == nil:
		p.ready = true
		k.port.Store(p.port)
		return k.report(ctx, want, "")
	}
	select {
	case <-p.Ended():
		return errors.Join(errors.New("pod "+want.Name+" has ended"), p.Err())
	default:
		return nil
	}
}

// start starts a pod, or returns why it waits.
func (k *kubelet) start(ctx context.Context, want *corev1.Pod) (reason string, err error) {
	archive := k.image(want.Spec.Containers[0].Image)
	if archive == "" {
		return "ErrImagePull", nil
	}
	root := k.t.TempDir()
	entrypoint, err := snippets.Unpack(archive, root)
	if err != nil {
		return "ErrImagePull", err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(free.Addr().String()) // it is an address
	free.Close()
	process, err := podprocess.New(ctx, &podprocess.Options{
		Namespace: want.Namespace, Spec: want.Spec, Config: k.cluster.Config(), Root: root, State: k.t.TempDir(),
		Entrypoint: entrypoint, Args: []string{"--listen=:" + port}, Log: &lineWriter{write: k.cluster.AppendLog},
	})
	if err != nil {
		return "ContainerCreating", err // such as a Secret that does not exist yet
	}
	if err := process.Start(ctx); err != nil {
		return "", err
	}
	k.pods[want.UID] = &pod{Process: process, port: port}
	return "", nil
}

// image returns the archive with an image, or "" if none was loaded into the cluster.
func (k *kubelet) image(name string) (archive string) {
	own, err := os.ReadFile(k.cluster.Kubeconfig())
	if err != nil {
		return ""
	}
	loaded, _ := filepath.Glob(snippets.ImageDir(k.clusters, "*") + "/*") // the pattern is valid
	for _, path := range loaded {
		cluster := filepath.Base(filepath.Dir(path))
		text, err := os.ReadFile(filepath.Join(k.clusters, cluster))
		if err != nil || !bytes.Equal(text, own) {
			continue
		}
		if image, err := snippets.ReadArchive(path); err == nil && slices.Contains(image.RepoTags, name) {
			archive = path
		}
	}
	return archive
}

// report writes the status of a pod: ready if there is no reason to wait.
func (k *kubelet) report(ctx context.Context, want *corev1.Pod, reason string) error {
	status := corev1.ContainerStatus{Name: want.Spec.Containers[0].Name, Image: want.Spec.Containers[0].Image}
	ready := corev1.ConditionFalse
	now := metav1.Now()
	want.Status.Phase = corev1.PodPending
	if reason == "" {
		ready = corev1.ConditionTrue
		want.Status.Phase = corev1.PodRunning
		status.Ready = true
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
	} else {
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	}
	if old := want.Status.ContainerStatuses; len(old) == 1 && old[0].State.Waiting != nil && reason != "" &&
		old[0].State.Waiting.Reason == reason {
		return nil // it is written already
	}
	want.Status.StartTime = &now
	want.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	want.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: now},
		{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: now},
	}
	_, err := k.client.CoreV1().Pods(want.Namespace).UpdateStatus(ctx, want, metav1.UpdateOptions{})
	return err
}

// accept passes the connections of kubectl port-forward on.
func (k *kubelet) accept(ctx context.Context) {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		from, err := k.forward.Accept()
		if err != nil {
			return // the test ends
		}
		connections.Go(func() {
			defer from.Close()
			port, _ := k.port.Load().(string)
			to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				return // no pod is ready
			}
			defer to.Close()
			stop := context.AfterFunc(ctx, func() { from.Close(); to.Close() })
			defer stop()
			connections.Go(func() { _, _ = io.Copy(to, from); to.Close() })
			_, _ = io.Copy(from, to) // until one side closes
		})
	}
}

// lineWriter calls write for each line.
type lineWriter struct {
	write func(line string) error
	rest  []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, after, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		if err := w.write(string(line)); err != nil {
			return 0, err
		}
		w.rest = after
	}
}
