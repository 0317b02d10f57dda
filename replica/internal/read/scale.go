// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

// scaleName is the name of the scale subresource.
const scaleName = "scale"

// scaleKind is the kind of all scales.
var scaleKind = &wire.Kind{
	GroupVersionKind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
	New:              func() runtime.Object { return &autoscalingv1.Scale{} },
}

// scaleOf returns the scale of an object. The paths are used for custom objects.
func scaleOf(value runtime.Object, paths *view.ScalePaths) (*autoscalingv1.Scale, error) {
	switch o := value.(type) {
	case *appsv1.Deployment:
		return newScale(&o.ObjectMeta, o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector)
	case *appsv1.ReplicaSet:
		return newScale(&o.ObjectMeta, o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector)
	case *appsv1.StatefulSet:
		return newScale(&o.ObjectMeta, o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector)
	case *corev1.ReplicationController:
		scale, err := newScale(&o.ObjectMeta, o.Spec.Replicas, o.Status.Replicas, nil)
		if err == nil {
			scale.Status.Selector = labels.SelectorFromSet(o.Spec.Selector).String()
		}
		return scale, err
	case *unstructured.Unstructured:
		if paths != nil {
			return customScale(o, paths)
		}
	}
	return nil, fmt.Errorf("%T has no scale", value)
}

// newScale returns the scale of an object with the given numbers of replicas. If spec is
// nil, it is 1.
func newScale(
	meta *metav1.ObjectMeta, spec *int32, current int32, selector *metav1.LabelSelector,
) (*autoscalingv1.Scale, error) {
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{Kind: scaleKind.Kind, APIVersion: scaleKind.GroupVersion().String()},
		ObjectMeta: metav1.ObjectMeta{
			Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID,
			ResourceVersion: meta.ResourceVersion, CreationTimestamp: meta.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: 1},
		Status: autoscalingv1.ScaleStatus{Replicas: current, Selector: matches.String()},
	}
	if spec != nil {
		scale.Spec.Replicas = *spec
	}
	return scale, nil
}

// customScale returns the scale of a custom object. The number of replicas in its spec is
// required, the one in its status is optional.
func customScale(o *unstructured.Unstructured, p *view.ScalePaths) (*autoscalingv1.Scale, error) {
	spec, there, err := unstructured.NestedInt64(o.Object, fieldsOf(p.SpecReplicasPath)...)
	if err != nil {
		return nil, status.New(http.StatusInternalServerError, "", err.Error())
	}
	current, _, err := unstructured.NestedInt64(o.Object, fieldsOf(p.StatusReplicasPath)...)
	if err != nil {
		return nil, status.New(http.StatusInternalServerError, "", err.Error())
	}
	selector := ""
	if p.LabelSelectorPath != "" {
		if selector, _, err = unstructured.NestedString(o.Object, fieldsOf(p.LabelSelectorPath)...); err != nil {
			return nil, status.New(http.StatusInternalServerError, "", err.Error())
		}
	}
	if !there {
		return nil, apierrors.NewInternalError(
			fmt.Errorf("the spec replicas field %q does not exist", p.SpecReplicasPath),
		)
	}
	meta := metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion(), CreationTimestamp: o.GetCreationTimestamp(),
	}
	replicas := int32(spec)
	scale, err := newScale(&meta, &replicas, int32(current), nil)
	if err == nil {
		scale.Status.Selector = selector
	}
	return scale, err
}

// fieldsOf returns the field names of a path.
func fieldsOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// writeScale writes the scale of an object, which is computed for each response.
func (c *call) writeScale(o *wire.Object, cluster string) error {
	value, err := c.Values.Decode(o)
	if err != nil {
		return err
	}
	scale, err := scaleOf(value, c.Kind.Scale)
	if err != nil {
		return err
	}
	encoding := wire.JSON
	if c.media.Encoding == encode.Protobuf {
		encoding = wire.Protobuf
	}
	made, err := wire.Encode(scale, encoding, scaleKind)
	if err != nil {
		return err
	}
	if c.media.Shape == respond.Table {
		return c.writeScaleTable(scale, made, cluster)
	}
	f := c.form(cluster)
	data, err := f.Object(nil, made)
	if err != nil {
		return err
	}
	return c.writeEncoded(f, scaleKind.GroupVersionKind, data)
}

// writeScaleTable writes a scale as a table.
func (c *call) writeScaleTable(scale *autoscalingv1.Scale, made *wire.Object, cluster string) error {
	t, err := c.newRows(nil)
	if err != nil {
		return err
	}
	age := "<unknown>"
	if !scale.CreationTimestamp.IsZero() {
		age = duration.HumanDuration(time.Since(scale.CreationTimestamp.Time))
	}
	cells := []any{scale.Name, scale.Spec.Replicas, scale.Status.Replicas, age}
	row, err := t.encode(metav1.TableRow{Cells: cells}, made, cluster)
	if err != nil {
		return err
	}
	columns := t.located(scaleColumns(!IsBuiltin(c.kind)))
	head, err := t.head(&metav1.ListMeta{ResourceVersion: scale.ResourceVersion}, columns)
	if err != nil {
		return err
	}
	return c.writeJSON(append(append(head, row...), "]}"...))
}

// scaleColumns returns the columns of tables of scales. kube-apiserver uses different
// columns for custom kinds.
func scaleColumns(custom bool) []metav1.TableColumnDefinition {
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	columns := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Description: meta["name"]},
		{Name: "Desired", Type: "integer", Description: autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]},
		{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]},
		{Name: "Age", Type: "string", Description: meta["creationTimestamp"]},
	}
	if custom {
		columns[0].Format = "name"
		columns[1].Description, columns[2].Description = "Number of desired replicas", "Number of actual replicas"
		columns[3].Type = "date"
	}
	return columns
}
