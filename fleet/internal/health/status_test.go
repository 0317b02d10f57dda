// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package health

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
)

func TestStatus_isReadable(t *testing.T) {
	pods := ResourceStatus{
		Resource: corev1.SchemeGroupVersion.WithResource("pods"),
		Status:   watershed.Status{Objects: 3, Version: 9, Synced: true},
	}
	s := Status{
		State: Stale, Since: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC), Err: errors.New("connection refused"),
		Synced: 1, Resources: 2, Objects: 3, Failing: []ResourceStatus{pods},
	}
	want := "stale since 2026-11-15T12:00:00Z, 1 of 2 resources synced, 3 objects, 1 resources failing: " +
		"connection refused"
	if got := fmt.Sprint(s); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(pods), "pods: idle, 3 objects at version 9"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
