// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestToken_isOfItsList: a token is read as it was written, and only by its own list.
func TestToken_isOfItsList(t *testing.T) {
	lists := []string{"", "/pods", "shop/pods", "/deployments.apps"}
	for _, of := range lists {
		was := token{Version: 7, Start: "east/shop/web\x00", Left: 3, Of: of}
		for _, by := range lists {
			is, err := parseToken(was.text(Seal{}), by)
			switch {
			case of != by:
				if !apierrors.IsBadRequest(err) {
					t.Errorf("a token of %q for %q: %v", of, by, err)
				}
			case err != nil || is.Version != was.Version || is.Start != was.Start || is.Left != was.Left ||
				tokenKey(is.Start) != "east/shop/web":
				t.Errorf("%+v is read as %+v: %v", was, is, err)
			}
		}
	}
	if _, err := parseToken(token{Version: 7, Start: "x", Of: "/pods"}.text(Seal{}), ""); !apierrors.IsBadRequest(err) {
		t.Errorf("a token of the fleet for a cluster: %v", err)
	}
	if is, err := parseToken(token{Version: 7, Start: "x", Left: -4}.text(Seal{}), ""); err != nil || is.Left != 0 {
		t.Errorf("fewer than none are left: %d %v", is.Left, err)
	}
}
