// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// modes are the ways to request objects.
var modes = map[string]kube.Query{
	"protobuf":      {},
	"JSON":          {JSON: true},
	"metadata":      {MetadataOnly: true},
	"JSON metadata": {MetadataOnly: true, JSON: true},
}

// samples are objects of kinds that an empty cluster does not have.
const samples = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: sample}, data: {a: b}}
- {apiVersion: v1, kind: Secret, metadata: {name: sample}, stringData: {a: b}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: sample}}
- {apiVersion: v1, kind: Service, metadata: {name: sample}, spec: {ports: [{port: 80}]}}
- {apiVersion: v1, kind: Endpoints, metadata: {name: sample}}
- {apiVersion: v1, kind: LimitRange, metadata: {name: sample}, spec: {limits: [{type: Pod, max: {cpu: "64"}}]}}
- {apiVersion: v1, kind: ResourceQuota, metadata: {name: sample}, spec: {hard: {persistentvolumeclaims: "10"}}}
- {apiVersion: v1, kind: Node, metadata: {name: sample}}
- {apiVersion: v1, kind: Event, metadata: {name: sample}, involvedObject: {kind: Pod, name: sample, namespace: default}, reason: Test, type: Normal}
- {apiVersion: v1, kind: PersistentVolume, metadata: {name: sample}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /tmp}}}
- {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: sample}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
- {apiVersion: v1, kind: PodTemplate, metadata: {name: sample}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: sample}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}}}
- {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: sample}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}}}
- {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: sample}, spec: {serviceName: a, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}}}
- {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: sample}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}}}
- {apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: sample}, revision: 1, data: {a: b}}
- {apiVersion: batch/v1, kind: Job, metadata: {name: sample}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}}
- {apiVersion: batch/v1, kind: CronJob, metadata: {name: sample}, spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}}}}
- {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: sample}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: sample}}}
- {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: sample}, spec: {defaultBackend: {service: {name: sample, port: {number: 80}}}}}
- {apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: sample}, spec: {controller: example.com/a}}
- {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: sample}, spec: {podSelector: {}}}
- {apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: sample}, spec: {minAvailable: 1, selector: {}}}
- {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: sample}}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: sample}, addressType: IPv4, endpoints: []}
- {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: sample}, provisioner: example.com/a}
- {apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: sample}, spec: {}}
- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: sample}, handler: a}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: "sample:with.colon"}, rules: []}
`

// testEveryResource lists and watches every resource that supports both, in every mode.
func testEveryResource(t *testing.T, k *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := open(t, k.Config())
	create(ctx, t, k, samples)
	made := strings.Count(samples, "\n- {")
	t.Cleanup(func() {
		if err := k.DeleteManifest(context.WithoutCancel(ctx), samples); err != nil {
			t.Errorf("delete the samples: %v", err)
		}
	})
	resources, err := c.Resources(ctx)
	if err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	var tried, filled, unregistered, objects int
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	begin := time.Now()
	for _, r := range resources {
		if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
			continue
		}
		kind, builtin := kube.KindOf(r.GroupVersionResource)
		if registered := scheme.Scheme.Recognizes(r.GroupVersionKind()); registered != builtin {
			t.Errorf("%s: the scheme has it: %t, KindOf has it: %t", r, registered, builtin)
		}
		if builtin && kind.GroupVersionKind != r.GroupVersionKind() {
			t.Errorf("%s is of kind %s, KindOf says %s", r, r.GroupVersionKind(), kind)
		}
		if !builtin {
			unregistered++
		}
		tried++
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			n := 0
			for mode, q := range modes {
				q.Resource = r.GroupVersionResource
				got, err := readBothWays(ctx, c, q, r.GroupVersionKind(), builtin && !q.JSON)
				if err != nil {
					t.Errorf("%s as %s: %v", r, mode, err)
				}
				n += got
			}
			mu.Lock()
			defer mu.Unlock()
			objects += n
			if n > 0 {
				filled++
			}
		})
	}
	all.Wait()
	t.Logf("%d resources, %d with objects, %d not in client-go's scheme, %d samples: %d objects listed and watched "+
		"in %s",
		tried, filled, unregistered, made, objects, time.Since(begin).Round(10*time.Millisecond))
	if filled < made {
		t.Errorf("%d samples were made, but only %d resources have objects", made, filled)
	}
}

// readBothWays lists and watches, and checks that both return the same objects. It
// returns their number.
func readBothWays(
	ctx context.Context, c *kube.Cluster, q kube.Query, want schema.GroupVersionKind, protobuf bool,
) (int, error) {
	s, err := c.Source(q)
	if err != nil {
		return 0, err
	}
	listed, page, err := listAll(ctx, s, reflector.ListOptions{})
	if err != nil {
		return 0, err
	}
	if page.Version == "" || page.Continue != "" {
		return 0, fmt.Errorf("list says %+v", page)
	}
	w, err := s.Watch(ctx, reflector.WatchOptions{InitialEvents: true, Timeout: time.Minute})
	if err != nil {
		return 0, err
	}
	defer w.Close()
	watched, _, err := watchInitial(w)
	if err != nil {
		return 0, err
	}
	for key, o := range listed {
		encoding := wire.JSON
		if protobuf {
			encoding = wire.Protobuf
		}
		if o.GroupVersionKind() != want || o.Encoding() != encoding || o.Version() == 0 {
			return 0, fmt.Errorf("%s in %s at %d of kind %s, want %s of kind %s", key, o.Encoding(), o.Version(),
				o.GroupVersionKind(), encoding, want)
		}
		// Some objects change all the time by themselves.
		if v := watched[key]; v == nil || v.Version() == o.Version() && !wire.Same(o, v) {
			return 0, fmt.Errorf("%s was listed as %q and watched as %q", key, o.Bytes(), v.Bytes())
		}
	}
	if len(listed) != len(watched) {
		return 0, fmt.Errorf("%d objects were listed, %d watched", len(listed), len(watched))
	}
	return len(listed), nil
}

// testContent compares pods with those in etcd.
func testContent(t *testing.T, k *kubetest.Cluster) {
	const n = 1200
	ctx := patient(t)
	if err := k.LoadPods(ctx, kubetest.Workload{}, n); err != nil {
		t.Fatal(err)
	}
	c := open(t, k.Config())
	truth, err := k.Truth(ctx, pods.GroupResource())
	if err != nil {
		t.Fatal(err)
	}
	if len(truth.Objects) != n {
		t.Fatalf("etcd has %d pods, want %d", len(truth.Objects), n)
	}
	// A hundred of them have one version, so for a moment the server has reached that
	// version but does not have all of them.
	expect.NoError(t, expect.Until(ctx, func() error {
		listed, _, err := listAll(ctx, sourceOf(t, c, kube.Query{Resource: pods}), reflector.ListOptions{})
		if err == nil && len(listed) < n {
			err = fmt.Errorf("%d of %d", len(listed), n)
		}
		return err
	}))
	for mode, q := range modes {
		t.Run(mode, func(t *testing.T) {
			ctx := patient(t)
			q.Resource = pods
			s := sourceOf(t, c, q)
			begin := time.Now()
			listed, page, err := listAll(ctx, s, reflector.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(begin)
			if page.Version == "" || page.Version == "0" {
				t.Errorf("the list has version %q", page.Version)
			}
			compare(t, truth, listed, q.MetadataOnly)

			begin = time.Now()
			w := beginWatch(ctx, t, s, reflector.WatchOptions{InitialEvents: true})
			watched, version, err := watchInitial(w)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d pods listed in %s, watched in %s", n, took.Round(time.Millisecond),
				time.Since(begin).Round(time.Millisecond))
			if version == "" {
				t.Error("the initial events have no version")
			}
			for key, o := range watched {
				if listed[key] == nil || !wire.Same(o, listed[key]) {
					t.Fatalf("%s was watched, and not listed like that", o)
				}
			}
			if len(watched) != len(listed) {
				t.Errorf("%d pods were watched, %d listed", len(watched), len(listed))
			}

			got, err := c.Get(ctx, kube.Query{
				Resource:     pods,
				Namespace:    truth.Objects[0].Meta.GetNamespace(),
				JSON:         q.JSON,
				MetadataOnly: q.MetadataOnly,
			}, truth.Objects[0].Meta.GetName())
			if err != nil {
				t.Fatal(err)
			}
			if !wire.Same(got, listed[got.Key()]) {
				t.Errorf("got %q, listed %q", got.Bytes(), listed[got.Key()].Bytes())
			}
		})
	}
}

func compare(t *testing.T, truth *kubetest.Truth, objects map[string]*wire.Object, metadataOnly bool) {
	t.Helper()
	if len(objects) != len(truth.Objects) {
		t.Errorf("%d pods were listed, etcd has %d", len(objects), len(truth.Objects))
	}
	for _, stored := range truth.Objects {
		want := stored.Object.(*corev1.Pod).DeepCopy()
		want.APIVersion, want.Kind = "v1", "Pod"
		if metadataOnly {
			want.Spec, want.Status = corev1.PodSpec{}, corev1.PodStatus{}
		}
		o := objects[want.Namespace+"/"+want.Name]
		if o == nil {
			t.Fatalf("%s/%s was not listed", want.Namespace, want.Name)
		}
		got, err := wire.DecodeFresh[*corev1.Pod](o)
		if err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(want, got) || o.Version() != uint64(stored.Revision) ||
			o.GroupVersionKind() != want.GroupVersionKind() {
			t.Fatalf("%s was listed at %d of kind %s, etcd has it at %d: %s", o.Key(), o.Version(),
				o.GroupVersionKind(), stored.Revision, cmp.Diff(want, got))
		}
	}
}
