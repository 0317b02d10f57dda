// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package operators

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operatorsVersion is the version of the first object of each kind. It is high, so that
// all versions have the same length.
const operatorsVersion = 1_000_000_000

func operatorsNamespace(i int) string { return fmt.Sprintf("namespace-%03d", i) }

// team returns the team of namespace i.
func team(i int) string { return fmt.Sprintf("team-%02d", i%20) }

// custom is a custom resource with the shapes that those of the operators have: settings,
// lists of named entries with labels, and conditions. K makes a Go type for each kind.
type custom[K any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              customSpec   `json:"spec"`
	Status            customStatus `json:"status"`
}

type customSpec struct {
	// Target is the name of the object that the resource refers to or belongs to.
	Target   string            `json:"target,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`
	Entries  []customEntry     `json:"entries,omitempty"`
}

type customStatus struct {
	Revision   int64              `json:"revision"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Entries    []customEntry      `json:"entries,omitempty"`
}

type customEntry struct {
	Name   string            `json:"name"`
	Kind   string            `json:"kind,omitempty"`
	Value  string            `json:"value,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Refs   []string          `json:"refs,omitempty"`
}

// DeepCopyObject returns a copy, as generated code would.
func (c *custom[K]) DeepCopyObject() runtime.Object {
	out := &custom[K]{}
	c.deepCopyInto(out)
	return out
}

func (c *custom[K]) deepCopyInto(out *custom[K]) {
	*out = *c
	c.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Settings = maps.Clone(c.Spec.Settings)
	out.Spec.Entries = copyEntries(c.Spec.Entries)
	out.Status.Entries = copyEntries(c.Status.Entries)
	out.Status.Conditions = slices.Clone(c.Status.Conditions) // they have nothing to copy deeply
}

func copyEntries(in []customEntry) []customEntry {
	out := slices.Clone(in)
	for i := range out {
		out[i].Labels = maps.Clone(in[i].Labels)
		out[i].Refs = slices.Clone(in[i].Refs)
	}
	return out
}

// customList is a list of custom resources.
type customList[K any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []custom[K] `json:"items"`
}

// DeepCopyObject returns a copy, as generated code would.
func (l *customList[K]) DeepCopyObject() runtime.Object {
	out := &customList[K]{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy(), Items: make([]custom[K], len(l.Items))}
	for i := range l.Items {
		l.Items[i].deepCopyInto(&out.Items[i])
	}
	return out
}

// shape is the size of the objects of a kind.
type shape struct {
	// settings and entries are the numbers of such members in the spec, and reported is
	// that of the entries in the status.
	settings, entries, reported int
	// random is the number of random bytes, in base64, such as a certificate's.
	random int
}

// resource returns a function that makes custom resources of a shape.
func resource[K any](s shape, identify func(i int) identity) func(i int) client.Object {
	return func(i int) client.Object {
		id := identify(i)
		c := &custom[K]{ObjectMeta: id.meta(i, s), Spec: s.spec(i, id), Status: s.status(i)}
		return c
	}
}

// composed returns a function that makes unstructured objects of a shape.
func composed(apiVersion, kind string, s shape, identify func(i int) identity) func(i int) client.Object {
	return func(i int) client.Object {
		typed := resource[struct{}](s, identify)(i)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			panic(err) // the type is ours
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetAPIVersion(apiVersion)
		u.SetKind(kind)
		return u
	}
}

// identity is the part of an object that the readers use.
type identity struct {
	namespace, name, target string
	labels                  map[string]string
}

// meta returns the metadata of object i of a kind.
func (id identity) meta(i int, s shape) metav1.ObjectMeta {
	random := rand.New(rand.NewPCG(uint64(i), 11))
	made := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC))
	all := map[string]string{
		"app.kubernetes.io/name":       fmt.Sprintf("service-%04d", i/3),
		"app.kubernetes.io/instance":   fmt.Sprintf("service-%04d", i/3),
		"app.kubernetes.io/managed-by": "Helm", "team": fmt.Sprintf("team-%02d", i%20),
	}
	maps.Copy(all, id.labels)
	return metav1.ObjectMeta{
		Namespace: id.namespace, Name: id.name, Labels: all, CreationTimestamp: made, Generation: 1,
		UID: types.UID(
			fmt.Sprintf("%08x-%04x-4000-8000-%012x", random.Uint32(), random.Uint32()&0xffff,
				random.Uint64()&0xffffffffffff),
		),
		ResourceVersion: strconv.Itoa(operatorsVersion + i),
		Annotations: map[string]string{
			"meta.helm.sh/release-name":      fmt.Sprintf("service-%04d", i/3),
			"meta.helm.sh/release-namespace": id.namespace,
			"example.com/checksum":           fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64()),
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "helm", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &made,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(s.managed()),
		}},
	}
}

// managed returns the managed fields of the objects of a shape. They are the same in all.
func (s shape) managed() string {
	var b strings.Builder
	b.WriteString(
		`{"f:metadata":{"f:annotations":{".":{},"f:example.com/checksum":{},"f:meta.helm.sh/release-name":{}},"f:labels":{".":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/name":{},"f:team":{}}},"f:spec":{".":{}`,
	)
	for i := range s.settings {
		fmt.Fprintf(&b, `,"f:setting%d":{}`, i)
	}
	for i := range s.entries {
		fmt.Fprintf(&b, `,"k:{\"name\":\"entry-%d\"}":{".":{},"f:kind":{},"f:name":{},"f:value":{}}`, i)
	}
	b.WriteString("}}")
	return b.String()
}

func (s shape) spec(i int, id identity) customSpec {
	out := customSpec{Target: id.target, Settings: map[string]string{}, Entries: s.list(i, s.entries)}
	for k := range s.settings {
		out.Settings[fmt.Sprintf("setting%d", k)] = fmt.Sprintf("value-%d-of-%s", k, id.name)
	}
	if s.random > 0 {
		out.Settings["data"] = noise(i, s.random)
	}
	return out
}

func (s shape) status(i int) customStatus {
	made := metav1.NewTime(time.Date(2026, 1, 2, 0, 0, i, 0, time.UTC))
	return customStatus{Revision: int64(i%5 + 1), Entries: s.list(i+1, s.reported), Conditions: []metav1.Condition{
		{
			Type:               "Ready",
			Status:             metav1.ConditionTrue,
			Reason:             "Ready",
			Message:            "the object is up to date",
			LastTransitionTime: made,
			ObservedGeneration: 1,
		},
		{Type: "Synced", Status: metav1.ConditionTrue, Reason: "ReconcileSuccess", LastTransitionTime: made},
	}}
}

// list returns entries that differ from those of other objects.
func (shape) list(i, n int) []customEntry {
	out := make([]customEntry, n)
	for k := range out {
		out[k] = customEntry{
			Name: fmt.Sprintf("entry-%d", k), Kind: []string{"Deployment", "Service", "ConfigMap", "Ingress"}[k%4],
			Value: fmt.Sprintf("sum by (namespace, job) "+
				"(rate(http_requests_total{job=\"service-%04d\",code=~\"5..\"}[5m])) > %d", i, k),
			Labels: map[string]string{"severity": "warning", "namespace": fmt.Sprintf("team-%02d-%03d", i%20, i%300)},
			Refs:   []string{fmt.Sprintf("ref-%d-%d", i, k)},
		}
	}
	return out
}

// noise returns n random bytes in base64, which cannot be packed well.
func noise(i, n int) string {
	var seed [32]byte
	copy(seed[:], strconv.Itoa(i))
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

// secret returns a function that makes secrets with n random bytes.
func secret(n int, identify func(i int) identity) func(i int) client.Object {
	return func(i int) client.Object {
		return &corev1.Secret{
			ObjectMeta: identify(i).meta(i, shape{settings: 3}), Type: corev1.SecretTypeOpaque,
			Data: map[string][]byte{"data": []byte(noise(i, n)), "name": []byte(fmt.Sprintf("secret-%d", i))},
		}
	}
}

// namespaceObject returns namespace i.
func namespaceObject(i int) client.Object {
	return &corev1.Namespace{ObjectMeta: identity{
		name: operatorsNamespace(i), labels: map[string]string{
			"kubernetes.io/metadata.name": operatorsNamespace(i), "team": team(i),
		},
	}.meta(i, shape{})}
}

// statefulSet returns a function that makes stateful sets.
func statefulSet(identify func(i int) identity) func(i int) client.Object {
	return func(i int) client.Object {
		id := identify(i)
		set := &appsv1.StatefulSet{
			ObjectMeta: id.meta(i, shape{entries: 8}),
			Status:     appsv1.StatefulSetStatus{ReadyReplicas: 2},
		}
		set.Spec.Template.Labels = id.labels
		for k := range 3 {
			c := corev1.Container{
				Name: fmt.Sprintf("container-%d", k), Image: fmt.Sprintf("registry.example.com/prometheus:v3.%d", i),
			}
			for e := range 12 {
				c.Args = append(c.Args, fmt.Sprintf("--setting.number-%d=%d", e, i))
				c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: id.name})
			}
			set.Spec.Template.Spec.Containers = append(set.Spec.Template.Spec.Containers, c)
		}
		return set
	}
}
