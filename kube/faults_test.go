// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// testBrokenConnections puts a proxy in front of the server. The pods are testContent's.
func testBrokenConnections(t *testing.T, k *kubetest.Cluster) {
	proxy := k.Proxy(t)
	for mode, q := range modes {
		t.Run(mode, func(t *testing.T) {
			ctx := patient(t)
			// Compressed responses would be too short to break.
			cfg := proxy.Config(k.Config())
			cfg.DisableCompression = true
			c := open(t, cfg)
			q.Resource = pods
			s := sourceOf(t, c, q)
			whole, page, err := listAll(ctx, s, reflector.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}

			// The body is cut, possibly where it looks complete.
			handed := 0
			for _, bytes := range []int64{60_000, 200_000, 333_333} {
				c.CloseIdleConnections()
				proxy.Cut()
				proxy.TruncateAfter(bytes, 1)
				n := 0
				_, err := s.List(ctx, reflector.ListOptions{}, func(*wire.Object) error {
					n++
					return nil
				})
				if err == nil || n >= len(whole) {
					t.Errorf("%d of %d pods of a truncated list: %v", n, len(whole), err)
				}
				handed += n
				wantReason(t, "a truncated list", err, reflector.Unknown)
				if ctx.Err() != nil {
					t.Fatal(ctx.Err())
				}
			}
			proxy.TruncateAfter(0, 0)
			if handed == 0 {
				t.Error("nothing was handed on before the lists broke off")
			}

			// A watch is cut, which is not a proper end.
			w := beginWatch(ctx, t, s, reflector.WatchOptions{Version: page.Version})
			time.AfterFunc(20*time.Millisecond, proxy.Cut)
			if e, err := w.Next(); err == nil || reflector.ReasonOf(err) != reflector.Unknown || err.Error() == "EOF" {
				t.Errorf("a watch that was cut: %+v, %v", e, err)
			}

			// A list stalls, and its context ends. If all of it arrives before it can
			// stall, retry.
			n := len(whole)
			for attempt := 0; n == len(whole) && attempt < 20; attempt++ {
				inner, cancel := context.WithCancel(ctx)
				n = 0
				_, err = s.List(inner, reflector.ListOptions{}, func(*wire.Object) error {
					if n++; n == 10 {
						proxy.Stall()
						time.AfterFunc(50*time.Millisecond, cancel)
					}
					return nil
				})
				cancel()
				proxy.Resume()
			}
			if !errors.Is(err, context.Canceled) || n < 10 || n == len(whole) {
				t.Errorf("a list that stalled after %d pods: %v", n, err)
			}

			// A watch stalls, and is closed.
			w = beginWatch(ctx, t, s, reflector.WatchOptions{Version: page.Version})
			proxy.Stall()
			time.AfterFunc(50*time.Millisecond, func() { w.Close() })
			if _, err := w.Next(); !errors.Is(err, context.Canceled) {
				t.Errorf("a stalled watch that was closed: %v", err)
			}
			proxy.Resume()

			// No server is listening.
			proxy.Down()
			expect.NoError(t, expect.Until(ctx, func() error {
				// The first attempt may still use the broken connection.
				_, err := s.List(ctx, reflector.ListOptions{}, func(*wire.Object) error { return nil })
				if reflector.ReasonOf(err) != reflector.Refused {
					return fmt.Errorf("%w is not refused", err)
				}
				return nil
			}))
			_, err = s.Watch(ctx, reflector.WatchOptions{})
			wantReason(t, "watch without a server", err, reflector.Refused)
			if _, err := s.Served(ctx); reflector.ReasonOf(err) != reflector.Refused {
				t.Errorf("served without a server: %v", err)
			}
			if err := proxy.Up(); err != nil {
				t.Fatal(err)
			}
			if again, _, err := listAll(ctx, s, reflector.ListOptions{}); err != nil || len(again) != len(whole) {
				t.Errorf("after all that: %d pods, %v", len(again), err)
			}
		})
	}
}

// TestTimeout checks that the configuration's timeout applies to the beginning of a
// response.
func TestTimeout(t *testing.T) {
	k := kubetest.Start(t, nil)
	ctx := patient(t)
	proxy := k.Proxy(t)
	cfg := proxy.Config(k.Config())
	cfg.Timeout = time.Second
	c := open(t, cfg)
	s := sourceOf(t, c, kube.Query{Resource: configMaps})
	_, page, err := listAll(ctx, s, reflector.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := beginWatch(ctx, t, s, reflector.WatchOptions{Version: page.Version})
	created := make(chan error, 1)
	time.AfterFunc(2*time.Second, func() {
		created <- k.CreateManifest(ctx, configMap("late", "timeout"))
	})
	wantEvent(t, w, delta.Added, "default/late")
	if err := <-created; err != nil {
		t.Fatal(err)
	}

	proxy.Stall()
	defer proxy.Resume()
	for what, ask := range map[string]func() error{
		"list":  func() error { _, _, err := listAll(ctx, s, reflector.ListOptions{}); return err },
		"watch": func() error { _, err := s.Watch(ctx, reflector.WatchOptions{}); return err },
		"get": func() error {
			_, err := c.Get(ctx, kube.Query{Resource: configMaps, Namespace: "default"}, "late")
			return err
		},
	} {
		begin := time.Now()
		err := ask()
		if err == nil || !strings.Contains(err.Error(), "no answer within 1s") || errors.Is(err, context.Canceled) ||
			time.Since(begin) > 10*time.Second {
			t.Errorf("%s without an answer: %v after %s", what, err, time.Since(begin))
		}
	}
}

func testExpiry(t *testing.T, k *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := open(t, k.Config())
	each := func(*wire.Object) error { return nil }
	all := sourceOf(t, c, kube.Query{Resource: pods})
	_, page, err := listAll(ctx, all, reflector.ListOptions{Limit: 10})
	if err != nil || page.Continue == "" {
		t.Fatalf("page %+v, %v", page, err)
	}
	create(ctx, t, k, configMap("newer", "expiry"))
	if _, err := k.Expire(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = all.List(ctx, reflector.ListOptions{Limit: 10, Continue: page.Continue}, each)
	wantReason(t, "next page of an old list", err, reflector.Expired)
	for mode, q := range modes {
		q.Resource = configMaps
		w, err := sourceOf(t, c, q).Watch(ctx, reflector.WatchOptions{Version: page.Version})
		if err == nil {
			_, err = w.Next()
			w.Close()
		}
		wantReason(t, mode+" watch from an old version", err, reflector.Expired)
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("%s watch from an old version: %v, want the server's status", mode, err)
		}
		q.Tweak = func(o *metav1.ListOptions) { o.ResourceVersionMatch = metav1.ResourceVersionMatchExact }
		_, err = sourceOf(t, c, q).List(ctx, reflector.ListOptions{Version: page.Version}, each)
		wantReason(t, mode+" list of an old version", err, reflector.Expired)
	}
}

func testStoppedServer(t *testing.T, k *kubetest.Cluster) {
	ctx := patient(t)
	c := open(t, k.Config())
	s := sourceOf(t, c, kube.Query{Resource: pods})
	_, page, err := listAll(ctx, s, reflector.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := beginWatch(ctx, t, s, reflector.WatchOptions{Version: page.Version})
	k.APIServer.Kill()
	if _, err := w.Next(); err == nil {
		t.Error("the watch of a killed server goes on")
	}
	_, err = s.List(ctx, reflector.ListOptions{}, func(*wire.Object) error { return nil })
	wantReason(t, "list of a stopped server", err, reflector.Refused)
	_, err = s.Watch(ctx, reflector.WatchOptions{InitialEvents: true})
	wantReason(t, "watch of a stopped server", err, reflector.Refused)
	_, err = c.Resources(ctx)
	wantReason(t, "discovery of a stopped server", err, reflector.Refused)
	if _, err := c.Resolve(ctx, pods.GroupVersion().WithKind("Pod")); reflector.ReasonOf(err) != reflector.Refused {
		t.Errorf("resolve with a stopped server: %v", err)
	}
}
