// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// overheadNames is how many objects the test reads, and how many requests a round has.
const overheadNames = 1000

// TestOverhead measures what access control adds to a GET: the same requests to a replica
// without it and to one with it, in turns. It runs only as the benchmark auth.
func TestOverhead(t *testing.T) {
	if os.Getenv("WATERSHED_BENCH") != "auth" {
		t.Skip("it measures, and runs with make bench NAME=auth")
	}
	k := kubetest.Start(t, &kubetest.Options{Name: "a", Users: []kubetest.User{{Name: "ann"}}})
	client := kubernetes.NewForConfigOrDie(quick(k))
	for i := range overheadNames {
		o := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)},
			Data:       map[string]string{"key": "value"},
		}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Grant(t.Context(), "ann", "", rbacv1.PolicyRule{
		Verbs:     []string{"get", "list", "watch"},
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
	}); err != nil {
		t.Fatal(err)
	}
	token := k.UserConfig("ann").BearerToken
	open := startGuarded(t, access.Options{}, k)
	open.disabled.Store(true)
	reviewed := startGuarded(t, access.Options{}, k)
	local := startGuarded(t, access.Options{Local: func(string) bool { return true }}, k)

	// Each round reads one object many times.
	times := map[*guardedReplica][]time.Duration{}
	for round := range 16 {
		for _, w := range []*guardedReplica{open, reviewed, local} {
			took := w.reads(t, token, overheadNames, func(int) string { return "/c-7" })
			if round > 0 {
				times[w] = append(times[w], took...)
			}
		}
	}
	// Then as many objects once.
	before := reviewed.control.Stats()["a"].Reviews.Reviews
	names := reviewed.reads(t, token, overheadNames, func(i int) string { return fmt.Sprintf("/c-%d", i) })
	reviews := reviewed.control.Stats()["a"].Reviews.Reviews - before
	before = local.control.Stats()["a"].Reviews.Reviews
	local.reads(t, token, overheadNames, func(i int) string { return fmt.Sprintf("/c-%d", i) })
	localReviews := local.control.Stats()["a"].Reviews.Reviews - before
	before = reviewed.control.Stats()["a"].Reviews.Reviews
	reviewed.reads(t, token, overheadNames, func(int) string { return "?limit=1" })
	listReviews := reviewed.control.Stats()["a"].Reviews.Reviews - before

	without, with, withLocal := median(times[open]), median(times[reviewed]), median(times[local])
	fmt.Fprintf(os.Stdout, "1000 GETs of 1000 names: median %s, %d reviews; with local RBAC %d reviews; 1000 lists: "+
		"%d reviews\n", median(names), reviews, localReviews, listReviews)
	fmt.Fprintf(os.Stdout, "local: get-p50-us with=%.1f overhead=%.2f\n", micros(withLocal),
		float64(withLocal)/float64(without))
	fmt.Fprintf(os.Stdout, "auth: get-p50-us without=%.1f with=%.1f overhead=%.2f sar-per-1000-requests=%d\n",
		micros(without), micros(with), float64(with)/float64(without), reviews)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// reads sends requests one after another and returns how long each took.
func (w *guardedReplica) reads(t *testing.T, token string, n int, path func(int) string) []time.Duration {
	t.Helper()
	took := make([]time.Duration, 0, n)
	for i := range n {
		began := time.Now()
		got, err := ask(context.Background(), w.Client(),
			w.URL+"/clusters/a/api/v1/namespaces/default/configmaps"+path(i), token, nil)
		if err != nil || got.code != http.StatusOK {
			t.Fatalf("%v %v", got, err)
		}
		took = append(took, time.Since(began))
	}
	return slices.Clip(took)
}
