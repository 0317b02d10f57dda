// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// onNode encodes a pod of a node.
func onNode(t testing.TB, name, node string, version uint64) *wire.Object {
	t.Helper()
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	o, err := wire.Encode(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "n",
			Name:            name,
			ResourceVersion: strconv.FormatUint(version, 10),
			Labels:          map[string]string{"node": node},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}, wire.Protobuf, kind)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOpenField_scansEachStateOnce counts the scans of a field that many
// readers use.
func TestOpenField_scansEachStateOnce(t *testing.T) {
	opts := Options(0)
	scans := 0
	open := opts.Open
	opts.Open = func(name string) (fanout.Dimension[*wire.Object], bool) {
		d, ok := open(name)
		value := d.Value
		d.Value = func(o *wire.Object) fanout.Value {
			scans++
			return value(o)
		}
		return d, ok
	}
	l := fanout.New(opts)
	revision := uint64(0)
	publish := func() {
		revision++
		l.Publish([]store.Change[*wire.Object]{
			{
				Type:     delta.Updated,
				Key:      "n/p",
				Old:      onNode(t, "p", "b", 1),
				New:      onNode(t, "p", "c", 2),
				Revision: revision,
			},
		})
	}
	cursors := make([]*fanout.Cursor[*wire.Object], 50)
	for i := range cursors {
		var err error
		if cursors[i], err = l.Cursor(0, HasField("spec.nodeName", fmt.Sprint("n", i))); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	if scans != 0 {
		t.Errorf("%d scans for a field that no reader waits for", scans)
	}
	for _, c := range cursors {
		if batch, err := c.TryNext(); err != nil || len(batch) > 0 {
			t.Fatal(batch, err)
		}
	}
	if scans != 2 {
		t.Errorf("%d scans for %d readers of one change, want 2", scans, len(cursors))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for _, c := range cursors {
		go func() {
			_, _ = c.Next(ctx) // waits until the test ends
			done <- struct{}{}
		}()
	}
	for l.Stats().Waiting < len(cursors) {
		runtime.Gosched()
	}
	publish()
	if scans != 4 || l.Stats().Waiting != len(cursors) {
		t.Errorf("%d scans and %d waiting readers after two changes, want 4 and %d", scans, l.Stats().Waiting,
			len(cursors))
	}
	cancel()
	for range cursors {
		<-done
	}
}

// TestCursor_readsEverythingWithoutADimension names more fields than a log has
// dimensions for.
func TestCursor_readsEverythingWithoutADimension(t *testing.T) {
	l := fanout.New(Options(0))
	l.Publish([]store.Change[*wire.Object]{{Type: delta.Added, Key: "n/p", New: onNode(t, "p", "b", 1), Revision: 1}})
	for i := range 100 {
		c, err := Cursor(l, 0, HasField(fmt.Sprint("spec.x", i), "b"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.TryNext(); err != nil || c.Position() != 1 {
			t.Fatal(c.Position(), err)
		}
	}
	c, err := Cursor(l, 0, HasField("spec.nodeName", "other"))
	if err != nil {
		t.Fatal(err)
	}
	if batch, err := c.TryNext(); err != nil || len(batch) != 1 {
		t.Errorf("read %v, %v, want the change", batch, err)
	}
	if _, err := Cursor(l, 0, fanout.In("unheard", "")); !errors.Is(err, fanout.ErrNoDimension) {
		t.Errorf("%v, want ErrNoDimension", err)
	}
}
