// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
)

// TestOptions_window checks the limit of the old states that an informer keeps: by
// default less than the engine does, since a program has many informers.
func TestOptions_window(t *testing.T) {
	for name, c := range map[string]struct {
		window, most int64
	}{
		"default": {0, 8 << 20},
		"given":   {1 << 20, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			const (
				states = 1500
				size   = 16 << 10 // 24 MB together
			)
			w := watch.NewFakeWithChanSize(states, false)
			report := &watershed.Report{}
			opts := compat.Options{Fast: true, Window: c.window, Report: report, Logger: quiet.Logger}
			i := compat.NewInformer(&opts)(&cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
				},
				WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
					if o.SendInitialEvents != nil {
						return nil, apierrors.NewBadRequest("it cannot stream")
					}
					return w, nil
				},
			}, &corev1.Pod{}, 0, nil)
			large := strings.Repeat("x", size)
			for n := range states {
				p := versioned(pod("a", "1"), n+2)
				p.Annotations = map[string]string{"large": large}
				w.Modify(p)
			}
			synced(t, i)
			expect.Soon(t, "the last state", func() bool { return i.LastSyncResourceVersion() == fmt.Sprint(states+1) })
			if got := report.Stats()[0].LogBytes; got > c.most || got < c.most/4 {
				t.Errorf("it keeps %d KB of old states, want up to %d", got>>10, c.most>>10)
			}
		})
	}
}
