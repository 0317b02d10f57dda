// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/miniature"
	"github.com/watershed-project/watershed/query"
)

// headersOf sends a request and returns the age of the response and its warnings.
func headersOf(t *testing.T, h http.Handler, url string, code int) (time.Duration, []string) {
	t.Helper()
	w := send(h, http.MethodGet, url)
	expect.Equal(t, w.Code, code)
	age, err := time.ParseDuration(w.Header().Get("Watershed-Age"))
	if err != nil {
		t.Errorf("GET %s: %v", url, err)
	}
	return age, w.Header().Values("Warning")
}

// wantStale waits until a response has a warning, and returns its age.
func wantStale(t *testing.T, h http.Handler, url, warning string) (age time.Duration) {
	t.Helper()
	expect.Eventually(t, time.Minute, func() error {
		var all []string
		if age, all = headersOf(t, h, url, http.StatusOK); len(all) != 1 || !strings.HasPrefix(all[0], warning) {
			return fmt.Errorf("the warnings are %q, want %s", all, warning)
		}
		return nil
	})
	return age
}

func TestFactory_age(t *testing.T) {
	server := shop(t)
	began := time.Now()
	h := ofFactory(t, server.Config(), pods, nil)
	synced := time.Now()
	for url, code := range map[string]int{
		"/pods": http.StatusOK, "/pods?keys=true": http.StatusOK, "/pods/shop/cart": http.StatusOK,
		"/pods/shop/none": http.StatusNotFound, "/pods?index=none&value=a": http.StatusBadRequest,
	} {
		if age, warnings := headersOf(t, h, url, code); age > time.Since(began) || warnings != nil {
			t.Errorf("GET %s: age %v, warnings %q", url, age, warnings)
		}
	}
	// The server sends nothing, so the copy gets older in this time.
	time.Sleep(50 * time.Millisecond)
	if age, _ := headersOf(t, h, "/pods", http.StatusOK); age < 50*time.Millisecond {
		t.Errorf("the age is %v, %v after the sync", age, time.Since(synced))
	}
	server.Close()
	least := time.Since(synced) - time.Millisecond // ages are rounded
	if age := wantStale(t, h, "/pods", `299 - "the copy has been stale for `); age < least || age > time.Since(began) {
		t.Errorf("the age is %v, not between %v and %v", age, least, time.Since(began))
	}
}

// A response from a fleet has the age of the cluster that has been silent longest, and
// warns of clusters that are stale or missing. Other clusters are not affected.
func TestFleet_age(t *testing.T) {
	live := shop(t)
	h := ofFleet(t, map[string]*rest.Config{"eu": shop(t).Config(), "us": live.Config()}, pods, nil)
	if _, warnings := headersOf(t, h, "/pods", http.StatusOK); warnings != nil {
		t.Errorf("warnings %q", warnings)
	}
	before := time.Now()
	live.Put(pod("shop", "new", "web"))
	expect.Eventually(t, time.Minute, func() error {
		if n := len(get(t, h, "/pods?cluster=us").Keys); n != 5 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	age, _ := headersOf(t, h, "/pods?cluster=us", http.StatusOK)
	least := time.Since(before)
	if age > least+time.Millisecond { // ages are rounded
		t.Errorf("the age of us is %v, %v after its last change", age, least)
	}
	time.Sleep(time.Millisecond) // ages are rounded, and eu must be older than the time that was measured
	for _, url := range []string{"/pods", "/pods?cluster=eu"} {
		if age, _ := headersOf(t, h, url, http.StatusOK); age < least {
			t.Errorf("GET %s: the age is %v, less than %v", url, age, least)
		}
	}
	live.Close()
	wantStale(t, h, "/pods", `299 - "cluster us has been stale for `)
	wantStale(t, h, "/pods/shop/cart?cluster=us", `299 - "cluster us has been stale for `)
	if _, warnings := headersOf(t, h, "/pods?cluster=eu", http.StatusOK); warnings != nil {
		t.Errorf("eu has warnings %q", warnings)
	}
}

func TestFleet_warnsOfMissingClusters(t *testing.T) {
	server := miniature.New(pod("shop", "cart", "web"))
	defer server.Close()
	f := newFleet(t, []string{"pods"}, map[string]*rest.Config{
		"eu": server.Config(),
		"us": {Host: "http://127.0.0.1:1"},
	})
	h, err := query.NewFleet(f, pods, nil)
	expect.NoError(t, err)
	defer h.Close()
	background(t, f.Run)
	expect.NoError(t, f.WaitForSync(t.Context()))
	_, warnings := headersOf(t, h, "/pods", http.StatusOK)
	expect.Equal(t, warnings, []string{`299 - "not synced yet, and left out: cluster us"`})
	_, warnings = headersOf(t, h, "/pods?cluster=eu", http.StatusOK)
	expect.Equal(t, len(warnings), 0)
}
