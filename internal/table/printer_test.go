// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/table"
)

func printer(t *testing.T, kind schema.GroupVersionKind) *table.Printer {
	t.Helper()
	p, ok := table.For(kind)
	if !ok {
		t.Fatalf("%s has no printer", kind)
	}
	return p
}

func lines(rows []metav1.TableRow) []string {
	var all []string
	for _, r := range rows {
		all = append(all, line(r))
	}
	return all
}

func TestPrinter_refusesOtherObjects(t *testing.T) {
	pods := printer(t, corev1.SchemeGroupVersion.WithKind("Pod"))
	for _, obj := range []runtime.Object{nil, &corev1.Node{}, &unstructured.Unstructured{}} {
		if row, err := pods.Row(obj, now); err == nil {
			t.Errorf("%T is printed as a pod: %s", obj, line(row))
		}
		if _, err := pods.Rows([]runtime.Object{&corev1.Pod{}, obj}, now); err == nil {
			t.Errorf("%T is printed in a list of pods", obj)
		}
	}
	if _, err := printer(t, corev1.SchemeGroupVersion.WithKind("LimitRange")).Row(&metav1.Status{}, now); err == nil {
		t.Error("a status is printed as a limit range")
	}
}

func TestPrinter_columnsAreTheCallers(t *testing.T) {
	p := printer(t, corev1.SchemeGroupVersion.WithKind("Pod"))
	p.Columns()[0].Name = "changed"
	if got := p.Columns()[0].Name; got != "Name" {
		t.Errorf("the column is called %s now", got)
	}
}

func TestPrinter_conditions(t *testing.T) {
	p := printer(t, corev1.SchemeGroupVersion.WithKind("Pod"))
	for phase, want := range map[corev1.PodPhase]int{
		corev1.PodRunning: 0, corev1.PodSucceeded: 1, corev1.PodFailed: 1,
	} {
		row, err := p.Row(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}, now)
		if err != nil {
			t.Error(err)
		}
		if len(row.Conditions) != want || want == 1 && row.Conditions[0].Reason != string(phase) {
			t.Errorf("a %s pod has the conditions %v", phase, row.Conditions)
		}
	}
}

func storageClass(name string, created time.Time, annotation string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{annotation: "true"},
	}}
}

// The newest of the default classes is the default.
func TestRows_ofStorageClasses(t *testing.T) {
	const (
		v1   = "storageclass.kubernetes.io/is-default-class"
		beta = "storageclass.beta.kubernetes.io/is-default-class"
	)
	p := printer(t, storagev1.SchemeGroupVersion.WithKind("StorageClass"))
	if !p.Whole() {
		t.Error("storage classes can be printed one by one")
	}
	list := []runtime.Object{
		storageClass("a", now.Add(-time.Hour), v1), storageClass("c", now.Add(-time.Minute), beta),
		storageClass("b", now.Add(-time.Minute), v1), storageClass("d", now, "other"),
	}
	rows, err := p.Rows(list, now)
	if err != nil {
		t.Fatal(err)
	}
	var names []any
	for _, r := range rows {
		names = append(names, r.Cells[0])
	}
	if d := cmp.Diff([]any{"a", "c", "b (default)", "d"}, names); d != "" {
		t.Error(d)
	}
	if row, err := p.Row(list[2], now); err != nil || row.Cells[0] != "b" {
		t.Errorf("alone it is printed %v, %v", row.Cells, err)
	}
}

func TestRows_ofFlowSchemas(t *testing.T) {
	p := printer(t, flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"))
	flow := func(name string, precedence int32) runtime.Object {
		return &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: precedence},
		}
	}
	list := []runtime.Object{flow("c", 5), flow("b", 9), flow("a", 9), flow("d", 1)}
	rows, err := p.Rows(list, now)
	if err != nil || !p.Whole() {
		t.Fatal(err, p.Whole())
	}
	for i, want := range []string{"d", "c", "a", "b"} {
		if rows[i].Cells[0] != want || list[i].(*flowcontrolv1.FlowSchema).Name != want {
			t.Errorf("row %d is %v of %v, want %s", i, rows[i].Cells, list[i], want)
		}
	}
}

func TestRows_ofOtherKinds(t *testing.T) {
	p := printer(t, corev1.SchemeGroupVersion.WithKind("Namespace"))
	rows, err := p.Rows([]runtime.Object{
		parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: b}}"),
		parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: a}}"),
	}, now)
	if err != nil || p.Whole() {
		t.Fatal(err, p.Whole())
	}
	if d := cmp.Diff([]string{"b||<unknown>", "a||<unknown>"}, lines(rows)); d != "" {
		t.Error(d)
	}
}

// Objects are shared, and a Quantity caches its text when it is first formatted. The race
// detector notices that.
func TestPrinter_isShared(t *testing.T) {
	target, current := resource.NewMilliQuantity(1500, resource.DecimalSI),
		resource.NewQuantity(2<<30, resource.BinarySI)
	obj := &autoscalingv2.HorizontalPodAutoscaler{
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{Metrics: []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.PodsMetricSourceType,
			Pods: &autoscalingv2.PodsMetricSource{Target: autoscalingv2.MetricTarget{AverageValue: target}},
		}}},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{CurrentMetrics: []autoscalingv2.MetricStatus{{
			Pods: &autoscalingv2.PodsMetricStatus{Current: autoscalingv2.MetricValueStatus{AverageValue: current}},
		}}},
	}
	p := printer(t, autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				if row, err := p.Row(obj, now); err != nil || row.Cells[2] != "2Gi/1500m" {
					t.Errorf("%v, %v", row, err)
				}
			}
		})
	}
	all.Wait()
}
