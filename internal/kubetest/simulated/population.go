// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// podsPerApp is how many pods of a workload have one owner.
const podsPerApp = 10

// population is the part that all clusters share: the names of the pods and namespaces,
// in the order of their keys, and their templates. It is immutable.
type population struct {
	workload   kubetest.Workload
	pods       []podIdentity
	namespaces []string

	// templates are indexed by the properties that change the length of an object.
	templates [shapes]struct {
		once sync.Once
		t    *template
		err  error
	}
}

// podIdentity is the part of a pod that is the same in every cluster.
type podIdentity struct {
	key    string // namespace/name
	origin int32  // which pod of the workload it is
	app    int32
	made   int64 // in seconds
}

func (p *podIdentity) name() string { return p.key[namespaceSpan.size+1:] }

// components is the number of values of the one label by which pods differ in length: see
// [kubetest.Workload].
const components = 3

// shape is the index of the template of an object.
type shape int

// shapes is the number of shapes: pods by component and one for namespaces, each complete
// or with metadata only, in each encoding.
const shapes = (components + 1) * 2 * shape(encodings)

func shapeOf(kind int, partial bool, enc encoding) shape {
	s := kind * 2
	if partial {
		s++
	}
	return shape(s)*shape(encodings) + shape(enc)
}

const namespaceKind = components

func newPopulation(o Options) *population {
	p := &population{workload: kubetest.Workload{Namespaces: o.Namespaces}}
	p.pods = make([]podIdentity, o.Pods)
	seen := map[string]bool{}
	for i := range p.pods {
		pod := p.workload.Pod(i)
		p.pods[i] = podIdentity{
			key:    pod.Namespace + "/" + pod.Name,
			origin: int32(i),
			app:    int32(i / podsPerApp),
			made:   pod.CreationTimestamp.Unix(),
		}
		if !seen[pod.Namespace] {
			seen[pod.Namespace] = true
			p.namespaces = append(p.namespaces, pod.Namespace)
		}
	}
	sort.Slice(p.pods, func(i, j int) bool { return p.pods[i].key < p.pods[j].key })
	sort.Strings(p.namespaces)
	return p
}

// from returns the first pod whose key is not before key.
func (p *population) from(key string) int {
	return sort.Search(len(p.pods), func(i int) bool { return p.pods[i].key >= key })
}

// within returns the pods of a namespace, all for "".
func (p *population) within(namespace string) (lo, hi int) {
	if namespace == "" {
		return 0, len(p.pods)
	}
	// A namespace's keys are between ns/ and the character after the slash.
	return p.from(namespace + "/"), p.from(namespace + "0")
}

// template returns a template, which is made on first use.
func (p *population) template(kind int, partial bool, enc encoding) (*template, error) {
	slot := &p.templates[shapeOf(kind, partial, enc)]
	slot.once.Do(func() {
		if kind == namespaceKind {
			slot.t, slot.err = p.namespaceTemplate(partial, enc)
		} else {
			slot.t, slot.err = p.podTemplate(kind, partial, enc)
		}
	})
	return slot.t, slot.err
}

// The times of a specimen, where every pod has its own.
var (
	specimenMade    = time.Unix(1_700_000_001, 0)
	specimenLater   = time.Unix(1_700_000_002, 0)
	specimenTouched = time.Unix(1_700_000_003, 0)
)

// specimenVersion is a version that no object has.
const specimenVersion = "9999999999"

// podTemplate makes a template from a pod of the workload. Values of variable length
// first get the most common length: addresses, the node and the release.
func (p *population) podTemplate(component int, partial bool, enc encoding) (*template, error) {
	pod := p.workload.Pod(component * podsPerApp)
	made := metav1.NewTime(specimenMade)
	later := metav1.NewTime(specimenLater)
	touched := metav1.NewTime(specimenTouched)
	app := pod.Labels["app.kubernetes.io/name"]
	hash := pod.Labels["pod-template-hash"]
	costUnit := pod.Annotations["example.com/cost-unit"]
	volume := pod.Spec.Volumes[2].Name

	pod.ResourceVersion = specimenVersion
	pod.CreationTimestamp = made
	pod.ManagedFields[0].Time, pod.ManagedFields[1].Time = &made, &touched
	pod.Spec.NodeName = "node-100"
	image := "registry.example/" + app + ":1.10.10"
	pod.Spec.Containers[0].Image = image
	s := &pod.Status
	s.StartTime = &made
	s.PodIP, s.HostIP = "10.64.100.100", "192.168.100.100"
	s.PodIPs, s.HostIPs = []corev1.PodIP{{IP: s.PodIP}}, []corev1.HostIP{{IP: s.HostIP}}
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = later
		if t := s.Conditions[i].Type; t == corev1.PodReady || t == corev1.ContainersReady {
			s.Conditions[i].LastTransitionTime = touched
		}
	}
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].State.Running.StartedAt = later
	}
	s.ContainerStatuses[0].Image = image

	const digest = "@sha256:"
	marks := []mark{
		{pod.Namespace, 0, namespaceSpan},
		{app, 0, appSpan},
		{hash, 0, hashSpan},
		{string(pod.OwnerReferences[0].UID), 0, ownerUIDSpan},
		{pod.Annotations["example.com/checksum"], 0, checksumSpan},
		{costUnit, len("cu-"), costUnitSpan},
		{volume, len("kube-api-access-"), volumeSpan},
		{":1.10.10", len(":"), releaseSpan},
		{digest + after(s.ContainerStatuses[0].ImageID, digest), len(digest), imageSpan},
		{digest + after(s.ContainerStatuses[1].ImageID, digest), len(digest), sidecarSpan},
		{pod.Name[len(app)+1+len(hash):], 1, suffixSpan},
		{string(pod.UID), 0, uidSpan},
		{s.PodIP, 0, podIPSpan},
		{s.HostIP, 0, hostIPSpan},
		{pod.Spec.NodeName, 0, nodeSpan},
		{after(s.ContainerStatuses[0].ContainerID, "://"), 0, mainIDSpan},
		{after(s.ContainerStatuses[1].ContainerID, "://"), 0, metricIDSpan},
		{specimenVersion, 0, versionSpan},
		{momentText(specimenMade, enc), 0, madeSpan},
		{momentText(specimenLater, enc), 0, laterSpan},
		{momentText(specimenTouched, enc), 0, touchedSpan},
	}
	if partial {
		return newTemplate(enc, &metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}, partialType, marks)
	}
	return newTemplate(enc, pod, metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, marks)
}

func (p *population) namespaceTemplate(partial bool, enc encoding) (*template, error) {
	ns := p.workload.Namespace(0)
	ns.ResourceVersion = specimenVersion
	marks := []mark{
		{ns.Name, 0, namespaceSpan},
		{string(ns.UID), 0, uidSpan},
		{specimenVersion, 0, versionSpan},
	}
	if partial {
		return newTemplate(enc, &metav1.PartialObjectMetadata{ObjectMeta: ns.ObjectMeta}, partialType, marks)
	}
	return newTemplate(enc, ns, metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, marks)
}

func after(s, sep string) string {
	_, rest, _ := strings.Cut(s, sep)
	return rest
}

// check makes all templates, to notice early that the workload no longer has the expected
// form.
func (p *population) check() error {
	for kind := range components + 1 {
		if _, err := p.template(kind, false, protobufEncoding); err != nil {
			return fmt.Errorf("population: %w", err)
		}
	}
	return nil
}
