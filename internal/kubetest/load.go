// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/kubetest/etcd"
)

// loadBatch is how many objects one transaction has; etcd allows 128.
const loadBatch = 100

// loaders is how many transactions run at once.
const loaders = 4

// LoadPods writes the first n pods of w, and their namespaces, directly into etcd, many
// times faster than through the API server. It returns when the API server has read them.
// The API server serves them like any others. In a cluster with nodes it returns an
// error: controllers would delete pods whose owners and nodes do not exist.
func (c *Cluster) LoadPods(ctx context.Context, w Workload, n int) error {
	if c.Kwok != nil {
		return fmt.Errorf("load %d pods: the controllers of cluster %s would delete them", n, c.opts.Name)
	}
	return c.load(ctx, w, "pods", n, func(i int) object {
		pod := w.Pod(i)
		pod.APIVersion, pod.Kind = "v1", "Pod"
		return pod
	})
}

// LoadSecrets is LoadPods for secrets.
func (c *Cluster) LoadSecrets(ctx context.Context, w Workload, n int) error {
	return c.load(ctx, w, "secrets", n, func(i int) object {
		secret := w.Secret(i)
		secret.APIVersion, secret.Kind = "v1", "Secret"
		return secret
	})
}

// object is an object that can be stored.
type object interface {
	runtime.Object
	metav1.Object
}

// load writes n objects of a resource of the core group into etcd.
func (c *Cluster) load(ctx context.Context, w Workload, resource string, n int, at func(i int) object) error {
	err := c.withEtcd(func(client *etcd.Client) error {
		if err := putNamespaces(ctx, client, w, n); err != nil {
			return err
		}
		errs := make([]error, loaders)
		var all sync.WaitGroup
		for l := range loaders {
			all.Go(func() {
				for from := l * loadBatch; from < n-1 && errs[l] == nil; from += loaders * loadBatch {
					objects := make([]object, 0, loadBatch)
					for i := from; i < min(n-1, from+loadBatch); i++ {
						objects = append(objects, at(i))
					}
					errs[l] = put(ctx, client, resource, objects)
				}
			})
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil || n < 1 {
			return err
		}
		// The API server considers a revision as read once it has read the first of its
		// objects. So the last revision must have only one object, or a client that waits
		// for it may miss the others for good.
		last := at(n - 1)
		if err := put(ctx, client, resource, []object{last}); err != nil {
			return err
		}
		return c.caughtUp(ctx, client, resource, last)
	})
	if err != nil {
		return fmt.Errorf("load %d %s: %w", n, resource, err)
	}
	return nil
}

// storedAt returns the key under which the API server stores an object of the core group.
func storedAt(resource string, o object) string {
	return "/registry/" + resource + "/" + o.GetNamespace() + "/" + o.GetName()
}

// caughtUp waits until the API server's memory has the version of an object that etcd
// has.
func (c *Cluster) caughtUp(ctx context.Context, client *etcd.Client, resource string, o object) error {
	stored, err := client.Read(ctx, etcd.Range{First: storedAt(resource, o)})
	if err != nil {
		return err
	}
	api, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	opts := metav1.ListOptions{
		FieldSelector:        "metadata.name=" + o.GetName(),
		ResourceVersion:      strconv.FormatInt(stored.Values[0].Revision, 10),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	for {
		err := api.CoreV1().RESTClient().Get().Namespace(o.GetNamespace()).Resource(resource).
			VersionedParams(&opts, scheme.ParameterCodec).Do(ctx).Error()
		if err == nil || !apierrors.IsTimeout(err) && !apierrors.IsTooManyRequests(err) {
			return err
		}
	}
}

// PutPods writes pods directly into etcd, new ones and changed ones, without any checks.
func (c *Cluster) PutPods(ctx context.Context, pods ...*corev1.Pod) error {
	err := c.withEtcd(func(client *etcd.Client) error {
		for len(pods) > 0 {
			n := min(len(pods), loadBatch)
			if err := putPods(ctx, client, pods[:n]); err != nil {
				return err
			}
			pods = pods[n:]
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put pods: %w", err)
	}
	return nil
}

func putPods(ctx context.Context, client *etcd.Client, pods []*corev1.Pod) error {
	objects := make([]object, len(pods))
	for i, pod := range pods {
		p := *pod
		p.APIVersion, p.Kind = "v1", "Pod"
		p.ResourceVersion = "" // etcd has it
		objects[i] = &p
	}
	return put(ctx, client, "pods", objects)
}

func put(ctx context.Context, client *etcd.Client, resource string, objects []object) error {
	values := make([]etcd.KeyValue, len(objects))
	for i, o := range objects {
		data, err := encode(o)
		if err != nil {
			return err
		}
		values[i] = etcd.KeyValue{Key: storedAt(resource, o), Value: data}
	}
	return client.PutAll(ctx, values)
}

// EncodePod returns a pod as the API server stores it: protobuf in its envelope.
func EncodePod(pod *corev1.Pod) ([]byte, error) {
	p := *pod
	p.APIVersion, p.Kind = "v1", "Pod"
	p.ResourceVersion = "" // etcd has it
	return encode(&p)
}

func encode(obj runtime.Object) ([]byte, error) {
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// putNamespaces creates the namespaces of the first n pods, except those that exist.
func putNamespaces(ctx context.Context, client *etcd.Client, w Workload, n int) error {
	done := map[string]bool{}
	for i := 0; i < n; i += podsPerApp {
		ns := w.Namespace(i)
		if done[ns.Name] {
			continue
		}
		done[ns.Name] = true
		ns.APIVersion, ns.Kind = "v1", "Namespace"
		data, err := encode(ns)
		if err != nil {
			return err
		}
		if err := client.PutNew(ctx, etcd.KeyValue{Key: "/registry/namespaces/" + ns.Name, Value: data}); err != nil {
			return err
		}
	}
	return nil
}

// CreateDeployments creates n deployments, named deployment-0 and so on, through
// the API server. In a cluster with nodes their pods appear and run.
func (c *Cluster) CreateDeployments(ctx context.Context, namespace string, n int, replicas int32) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	for i := range n {
		name := fmt.Sprintf("deployment-%d", i)
		labels := map[string]string{"app": name}
		_, err := client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{
						Name:  "main",
						Image: "registry.example/" + name + ":1.0",
					}}},
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create deployment %s/%s: %w", namespace, name, err)
		}
	}
	return nil
}
