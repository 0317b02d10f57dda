// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond_test

import (
	"net/http"
	"testing"

	"github.com/watershed-project/watershed/replica/internal/respond"
)

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "identity": false, "gzip": true, "br, gzip": true, "gzip;q=0.8": true, "gzip; q=0.001": true,
		"gzip;q=1.0, identity;q=0": true,
		"gzip;q=0":                 false, "gzip; q=0.000": false, "identity;q=0": false, "gzip;q=x": true,
	} {
		r := &http.Request{Header: http.Header{"Accept-Encoding": {header}}}
		if got := respond.AcceptsGzip(r); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}
