// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import "testing"

func TestBudget_forgetsUsers(t *testing.T) {
	b := NewBudget(10)
	for _, user := range []string{"ann", "ben", ""} {
		b.Take(user, 1)
	}
	for _, user := range []string{"ann", "ben", ""} {
		b.Release(user, 1)
	}
	if b.taken != 0 || len(b.users) != 0 {
		t.Errorf("%d of %v are taken", b.taken, b.users)
	}
}
