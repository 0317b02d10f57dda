// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/wire"
)

// TestVerify_real verifies the copies of a real cluster, whole and in parts, while its
// objects change. It finds no divergence, then those that are injected, and repairs them.
func TestVerify_real(t *testing.T) {
	random := verifySeed(t)
	c := kubetest.Start(t, nil)
	if err := c.LoadPods(t.Context(), kubetest.Workload{Seed: 1}, 2_000); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	d, err := directory.NewStatic(
		fleet.Entry{Name: "whole", Config: c.Config()},
		fleet.Entry{
			Name: "part", Config: c.Config(), Scope: &fleet.Scope{Namespace: "default", LabelSelector: "even=yes"},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, d, &fleet.Options{
		Resources: []string{"*", "secrets", "events", "leases.coordination.k8s.io"},
		History:   1 << 24,
		Drop:      wire.ManagedFields,
		Logger:    quiet,
	})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := f.Member("whole")
	part, _ := f.Member("part")
	stop := writeConfigMaps(t, random, client)
	compared := verifyEverything(t, 10*time.Second, m, part)
	stop()
	t.Logf("%d comparisons: %+v and %+v", compared, m.Stats().Verification, part.Stats().Verification)

	injected := inject(t, random, m, 250, false, func(string) bool { return true })
	wantFound(t, verifyCopy(t, m, fleet.VerifyOptions{}), injected)
	v := verifyCopy(t, m, fleet.VerifyOptions{Deep: true, Repair: true})
	wantFound(t, v, injected)
	if v.Repair == nil || v.Diverges() {
		t.Errorf("the repair is %v", v.Repair)
	}
	expect.NoError(t, unlike(t.Context(), f, "whole", c, podResource))

	// A version that etcd has compacted can be compared again as soon as the copy has a
	// later one.
	if _, err := c.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, 2*time.Minute, func() error {
		_, err := m.Verify(t.Context(), podResource, fleet.VerifyOptions{})
		return err
	})
}

// verifyEverything verifies all resources of members for a time, and returns how many
// comparisons that were.
func verifyEverything(t *testing.T, d time.Duration, members ...*fleet.Member) int {
	t.Helper()
	n := 0
	for began, deep := time.Now(), false; time.Since(began) < d; deep = !deep {
		for _, m := range members {
			for _, r := range m.Mirrored() {
				v, err := m.Verify(t.Context(), r, fleet.VerifyOptions{Deep: deep})
				if err != nil {
					t.Fatal(err)
				}
				n++
				if v.Divergences() > 0 || v.Undecided > 0 {
					t.Errorf("%s: a healthy copy diverges: %v %v", m.Name(), v, v.Examples)
				}
			}
		}
	}
	return n
}

// writeConfigMaps creates, updates and deletes config maps until it is stopped. Those with
// an even number have the label even=yes, which changes now and then.
func writeConfigMaps(t *testing.T, random *rand.Rand, client kubernetes.Interface) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	own := rand.New(rand.NewPCG(random.Uint64(), 3))
	maps := client.CoreV1().ConfigMaps("default")
	write := func() error {
		o := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("churn-%d", own.IntN(50))},
			Data:       map[string]string{"n": fmt.Sprint(own.Uint64())},
		}
		if own.IntN(2) == 0 {
			o.Labels = map[string]string{"even": "yes"}
		}
		switch own.IntN(4) {
		case 0:
			return maps.Delete(ctx, o.Name, metav1.DeleteOptions{})
		case 1:
			_, err := maps.Create(ctx, o, metav1.CreateOptions{})
			return err
		}
		_, err := maps.Update(ctx, o, metav1.UpdateOptions{})
		return err
	}
	var running sync.WaitGroup
	running.Go(func() {
		written := 0
		for ctx.Err() == nil {
			if write() == nil {
				written++
			}
		}
		if written < 100 {
			t.Errorf("only %d writes", written)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}
