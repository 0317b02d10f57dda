// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/wire"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// identify returns the identity of a resource.
func identify(resource string) format.Identity {
	return format.Identity{
		Cluster:   "uid-1",
		Version:   "v1",
		Resource:  resource,
		Kind:      "ConfigMap",
		Encoding:  "JSON",
		Transform: "drop:managedFields",
	}
}

func newObject(tb testing.TB, key string, version uint64, text string) *wire.Object {
	tb.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	raw := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d","labels":{"app":%q}},"data":{"text":%q}}`,
		name, namespace, version, name, text)
	o, err := wire.NewObject([]byte(raw), wire.JSON, nil)
	must(tb, err)
	return o
}

// trainedPacker returns a packer that has a dictionary for the objects of tests.
func trainedPacker(tb testing.TB) *objectpack.Packer {
	tb.Helper()
	p := objectpack.NewPacker(0)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 500 {
		o := newObject(tb, fmt.Sprintf("shop/sample-%d", i), uint64(i+1), fmt.Sprintf("%0200d", r.Int()))
		p.Pack(o, nil)
	}
	if o := newObject(tb, "shop/sample", 1, fmt.Sprintf("%0200d", 1)); p.Stored(o, nil).How == nil {
		tb.Fatal("there is no dictionary")
	}
	return p
}
