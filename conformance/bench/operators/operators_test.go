// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package operators

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// TestOperators_sidesReadTheSame checks that every reconcile of each operator finds its
// objects, and that the caches return the same number of them.
func TestOperators_sidesReadTheSame(t *testing.T) {
	ctrl.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	percent := 2
	if testing.Short() {
		percent = 1
	}
	all := operators(percent)
	server := httptest.NewServer(newOperatorsServer(all))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	for i := range all {
		t.Run(all[i].name, func(t *testing.T) {
			var want string
			for s, side := range operatorSides {
				task := &operatorTask{
					URL:      fmt.Sprintf("%s/%d/%d", server.URL, i, s),
					Operator: i,
					Percent:  percent,
					Ours:     side.ours,
					Tap:      side.tap,
				}
				p, err := startOperator(t.Context(), task)
				if err != nil {
					t.Fatalf("%s: %v", side.Name, err)
				}
				if _, err := p.run(t.Context(), task, 3*p.batch()); err != nil {
					t.Fatalf("%s: %v", side.Name, err)
				}
				r := p.reads
				got := fmt.Sprintf("%d gets, %d lists of %d objects", r.gets, r.lists, r.objects)
				if want == "" {
					want = got
				}
				if got != want || r.gets == 0 || r.objects < r.lists/2 {
					t.Errorf("%s: %s, want %s", side.Name, got, want)
				}
			}
		})
	}
}
