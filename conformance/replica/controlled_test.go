// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/internal/expect"
)

const (
	// workNamespace has the objects of the controllers' work.
	workNamespace = "work"
	// workJob is a job of workJobPods pods.
	workJob     = "job"
	workJobPods = 5
)

// controlledWork is work for the controllers and the scheduler of a cluster. It is written
// and checked at the API server.
type controlledWork struct {
	*testing.T
	client *kubernetes.Clientset
	// pods is how many pods all deployments have.
	pods int
}

// deployments returns how many deployments there are. All have the same size.
func (w *controlledWork) deployments() int { return max(2, w.pods/50) }

// size returns how many replicas one deployment has.
func (w *controlledWork) size() int { return w.pods / w.deployments() }

// manyPods is from how many pods on all kinds of work are done. Less work is for a short test,
// and nodes take some seconds to start pods, however few they are.
const manyPods = 500

// run creates objects, changes and deletes them, and waits for the controllers each time.
func (w *controlledWork) run(ctx context.Context) {
	w.Helper()
	size := w.size()
	reached := func(ctx context.Context) error { return w.reached(ctx, size) }
	w.step(ctx, "create", w.create, reached)
	size = w.size() / 2
	w.step(ctx, "scale down", w.scale(size), reached)
	if w.pods >= manyPods {
		w.step(ctx, "job", w.createJob, w.jobDone)
		size = w.size()
		w.step(ctx, "scale up", w.scale(size), reached)
	}
	w.step(ctx, "roll out", w.rollOut, reached)
	w.step(ctx, "delete", w.deleteDeployments, w.gone)
	w.step(ctx, "delete namespace", func(ctx context.Context) error {
		return w.client.CoreV1().Namespaces().Delete(ctx, workNamespace, metav1.DeleteOptions{})
	}, func(ctx context.Context) error {
		_, err := w.client.CoreV1().Namespaces().Get(ctx, workNamespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("namespace %s still exists: %w", workNamespace, err)
	})
}

// step makes a change, and waits until the controllers have reacted.
func (w *controlledWork) step(ctx context.Context, name string, change, done func(context.Context) error) {
	w.Helper()
	began := time.Now()
	if err := change(ctx); err != nil {
		w.Fatalf("%s: %v", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := expect.Until(ctx, func() error {
		err := done(ctx)
		if err != nil {
			time.Sleep(200 * time.Millisecond) // the check itself is work for the API server
		}
		return err
	}); err != nil {
		w.Fatalf("%s: %v", name, err)
	}
	w.Logf("%s: %s", name, time.Since(began).Round(100*time.Millisecond))
}

func workName(i int) string { return fmt.Sprintf("app-%d", i) }

func (w *controlledWork) create(ctx context.Context) error {
	if _, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: workNamespace},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	replicas := int32(w.size())
	for i := range w.deployments() {
		labels := map[string]string{"app": workName(i)}
		meta := metav1.ObjectMeta{Name: workName(i), Labels: labels}
		if _, err := w.client.AppsV1().Deployments(workNamespace).Create(ctx,
			&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: workTemplate(labels),
			}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := w.client.CoreV1().Services(workNamespace).Create(ctx,
			&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
				Selector: labels, Ports: []corev1.ServicePort{{Port: 80}},
			}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func workTemplate(labels map[string]string) corev1.PodTemplateSpec {
	grace := int64(1) // the nodes use all of it
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "main", Image: "image:1"}},
		},
	}
}

// reached returns an error unless every deployment has a number of pods, all of which run on
// nodes and are the endpoints of the deployment's service.
func (w *controlledWork) reached(ctx context.Context, size int) error {
	deployments, err := w.client.AppsV1().Deployments(workNamespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	for _, d := range deployments.Items {
		s := d.Status
		if int(*d.Spec.Replicas) != size || s.ObservedGeneration < d.Generation || int(s.Replicas) != size ||
			int(s.UpdatedReplicas) != size || int(s.AvailableReplicas) != size {
			return fmt.Errorf("deployment %s: generation %d, status %+v, want %d pods", d.Name, d.Generation, s, size)
		}
	}
	pods, err := w.client.CoreV1().Pods(workNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app"})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName == "" || p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is %s on node %q", p.Name, p.Status.Phase, p.Spec.NodeName)
		}
	}
	slices, err := w.client.DiscoveryV1().EndpointSlices(workNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	endpoints := 0
	for _, s := range slices.Items {
		endpoints += len(s.Endpoints)
	}
	if want := size * w.deployments(); len(deployments.Items) != w.deployments() || len(pods.Items) != want ||
		endpoints != want {
		return fmt.Errorf("%d deployments, %d pods and %d endpoints, want %d pods", len(deployments.Items),
			len(pods.Items), endpoints, want)
	}
	return nil
}

func (w *controlledWork) createJob(ctx context.Context) error {
	n := int32(workJobPods)
	template := workTemplate(map[string]string{"part-of": workJob})
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := w.client.BatchV1().Jobs(workNamespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: workJob},
		Spec:       batchv1.JobSpec{Completions: &n, Parallelism: &n, Template: template},
	}, metav1.CreateOptions{})
	return err
}

func (w *controlledWork) jobDone(ctx context.Context) error {
	job, err := w.client.BatchV1().Jobs(workNamespace).Get(ctx, workJob, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue && job.Status.Succeeded == workJobPods {
			return nil
		}
	}
	return fmt.Errorf("job %s: status %+v", workJob, job.Status)
}

// scale returns a function that sets the number of replicas of all deployments.
func (w *controlledWork) scale(replicas int) func(context.Context) error {
	return func(ctx context.Context) error {
		return w.patch(ctx, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	}
}

// patch changes all deployments.
func (w *controlledWork) patch(ctx context.Context, patch string) error {
	for i := range w.deployments() {
		if _, err := w.client.AppsV1().Deployments(workNamespace).Patch(ctx, workName(i), types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// rollOut replaces all pods.
func (w *controlledWork) rollOut(ctx context.Context) error {
	return w.patch(ctx, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"image:2"}]}}}}`)
}

// deleteDeployments deletes one half of the deployments at once, and one by one the others,
// of which every second one must wait for its pods.
func (w *controlledWork) deleteDeployments(ctx context.Context) error {
	deployments := w.client.AppsV1().Deployments(workNamespace)
	foreground, background := metav1.DeletePropagationForeground, metav1.DeletePropagationBackground
	for i := range w.deployments() / 2 {
		policy := &background
		if i%2 == 0 {
			policy = &foreground
		}
		if err := deployments.Delete(ctx, workName(i), metav1.DeleteOptions{PropagationPolicy: policy}); err != nil {
			return err
		}
	}
	return deployments.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
}

// gone returns an error if the deployments or one of their objects still exist.
func (w *controlledWork) gone(ctx context.Context) error {
	deployments, err := w.client.AppsV1().Deployments(workNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	sets, err := w.client.AppsV1().ReplicaSets(workNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := w.client.CoreV1().Pods(workNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app"})
	if err != nil {
		return err
	}
	if len(deployments.Items)+len(sets.Items)+len(pods.Items) > 0 {
		return fmt.Errorf("%d deployments, %d sets and %d pods still exist", len(deployments.Items), len(sets.Items),
			len(pods.Items))
	}
	return nil
}
