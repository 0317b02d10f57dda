// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/wire"
)

// TestEachLabel_isEveryLabel reads the labels of objects as they were sent, packed and
// packed densely, and compares them with those they were made with.
func TestEachLabel_isEveryLabel(t *testing.T) {
	sets := []map[string]string{
		nil,
		{"app": "web"},
		{"app": "", "example.org/tier": "front", "long": strings.Repeat("x", 200)},
		{"quoted": `"\` + "\n\té", "e": "é"},
	}
	for _, e := range encodings {
		p := wire.NewPacker()
		packedPods(t, p, e, 500) // what a dictionary is made of
		packed := 0
		for n, set := range sets {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint(n), ResourceVersion: "7", Labels: set}}
			pod.Spec.Containers = []corev1.Container{{Name: "main", Image: strings.Repeat("registry.example.org/", 20)}}
			o, err := wire.Encode(pod, e, podKind)
			must(t, err)
			length := len(o.Bytes())
			for _, change := range []func(){func() {}, func() { p.Pack(o, nil) }, func() { p.Settle(o) }} {
				change()
				got, calls := map[string]string{}, 0
				o.EachLabel(func(key, value string) {
					got[key] = value
					calls++
				})
				if !maps.Equal(got, set) || calls != len(set) {
					t.Errorf("%v: labels are %v, told %d times, want %v", e, got, calls, set)
				}
				if n := o.Length(); n < length*9/10 || n > length*11/10 {
					t.Errorf("%v: the length is %d, packed %t: %d", e, length, o.Packed(), n)
				}
			}
			if o.Packed() {
				packed++
			}
		}
		if packed == 0 {
			t.Errorf("%v: nothing was packed", e)
		}
	}
}
