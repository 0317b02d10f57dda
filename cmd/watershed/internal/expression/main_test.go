// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"reflect"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newOf returns what makes empty values of the type of an object.
func newOf(object runtime.Object) func() runtime.Object {
	t := reflect.TypeOf(object).Elem()
	return func() runtime.Object { return reflect.New(t).Interface().(runtime.Object) }
}

func decode(tb testing.TB, o *wire.Object) map[string]any {
	tb.Helper()
	u, err := wire.DecodeFresh[*unstructured.Unstructured](o)
	if err != nil {
		tb.Fatal(err)
	}
	return u.Object
}
