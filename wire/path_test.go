// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed/wire"
)

func TestField_readsBothEncodings(t *testing.T) {
	kind := &wire.Kind{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"),
		New:              func() runtime.Object { return new(corev1.Pod) },
	}
	grace := int64(-30)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "b", ResourceVersion: "5", Labels: map[string]string{"nodeName": "no"},
		},
		Spec: corev1.PodSpec{
			NodeName: `no"de`, HostNetwork: true, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "spec"}}, NodeSelector: map[string]string{"nodeName": "no"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, encoding := range []wire.Encoding{wire.JSON, wire.Protobuf} {
		o, err := wire.Encode(pod, encoding, kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			path, want string
			readable   bool
		}{
			{"spec.nodeName", `no"de`, true},
			{"spec.hostNetwork", "true", true},
			{"spec.terminationGracePeriodSeconds", "-30", true},
			{"status.phase", "Running", true},
			{"status.podIP", "", true},
			{"status.nominatedNodeName", "", true},
			{"metadata.name", "a", true},
			{"spec.containers", "", false},
			{"spec.containers.name", "", false},
			{"spec", "", false},
		} {
			got, ok := o.Field(wire.NewPath(c.path))
			if ok != c.readable || ok && got != c.want {
				t.Errorf("%s of a pod in %s: %q, %t; want %q, %t", c.path, encoding, got, ok, c.want, c.readable)
			}
		}
	}
}

func TestField_ofJSON(t *testing.T) {
	for _, c := range []struct {
		spec, want string
		readable   bool
	}{
		{`{"a":{"b":"x"}}`, "x", true},
		{`{"a":{"b":"\u0078\\"}}`, `x\`, true},
		{`{ "c" : {"b":"y"} , "a" : { "b" : 7 , "b2":8 } }`, "7", true},
		{`{"a":{"b":false}}`, "false", true},
		{`{"a":{"b":0}}`, "0", true},
		{`{"a":{"b":-12}}`, "-12", true},
		{`{"a":{"b":null}}`, "", true},
		{`{"a":null}`, "", true},
		{`null`, "", true},
		{`{}`, "", true},
		{`{"a":{"b":1.0}}`, "", false},
		{`{"a":{"b":1e3}}`, "", false},
		{`{"a":{"b":12345678901234567890}}`, "", false},
		{`{"a":{"b":{}}}`, "", false},
		{`{"a":{"b":["x"]}}`, "", false},
		{`{"a":"x"}`, "", false},
		{`{"a":{"b":"x","b":"y"}}`, "", false},
		{`{"a":{"b":"x"},"a":{}}`, "", false},
	} {
		o, err := wire.NewObject([]byte(`{"kind":"W","apiVersion":"e/v1","metadata":{"name":"w"},"spec":`+c.spec+`}`),
			wire.JSON, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := o.Field(wire.NewPath("spec.a.b"))
		if got != c.want || ok != c.readable {
			t.Errorf("%s: %q, %t; want %q, %t", c.spec, got, ok, c.want, c.readable)
		}
	}
}
