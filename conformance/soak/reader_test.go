// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// reader repeatedly requests objects that always exist. The subject may be unable to
// respond, but it must never respond that an object does not exist: a client would
// believe that it was deleted.
type reader struct {
	client *http.Client
	host   string

	mu      sync.Mutex
	answers map[string]int // counts by path and code
}

// alwaysThere are paths of objects that are never deleted, and a text that each response
// contains.
var alwaysThere = []struct{ path, has string }{
	{"/api/v1/namespaces/default/configmaps/landmark", "landmark"},
	{"/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=landmark", "landmark"},
	{"/apis", "batch/v1"},
	{"/apis/apps/v1", "deployments"},
	{"/apis/example.watershed.dev/v1/sites?limit=1", "SiteList"},
}

func newReader(t *testing.T, cfg *rest.Config, c *kubetest.Cluster) *reader {
	t.Helper()
	writer, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	landmark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "landmark"}}
	if _, err := writer.CoreV1().ConfigMaps("default").Create(t.Context(), landmark,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &reader{client: client, host: cfg.Host, answers: map[string]int{}}
}

// run sends requests until ctx ends.
func (r *reader) run(ctx context.Context) {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			there := alwaysThere[n%len(alwaysThere)]
			answer := r.ask(ctx, there.path, there.has)
			if ctx.Err() != nil {
				return
			}
			r.mu.Lock()
			r.answers[there.path+" "+answer]++
			r.mu.Unlock()
		}
	}
}

const (
	// unanswered means that there was no response.
	unanswered = "no answer"
	// without is a response without the expected text.
	without = "200 without it"
)

// denies reports whether a response claims that an object does not exist.
func denies(answer string) bool {
	return strings.HasSuffix(answer, "404") || strings.HasSuffix(answer, "410") || strings.HasSuffix(answer, without)
}

// ask returns the subject's response.
func (r *reader) ask(ctx context.Context, path, has string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.host+path, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return unanswered
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "half an answer"
	case resp.StatusCode == http.StatusOK && !strings.Contains(string(body), has):
		return without
	}
	return fmt.Sprint(resp.StatusCode)
}

// report returns all responses, and the wrong ones.
func (r *reader) report() (all string, wrong []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(r.answers)) {
		fmt.Fprintf(&b, "\n  %5d %s", r.answers[what], what)
		if denies(what) {
			wrong = append(wrong, fmt.Sprintf("%d times %s", r.answers[what], what))
		}
	}
	return b.String(), wrong
}
