// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package health

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/reflector"
)

var noon = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)

// failing returns a resource that has failed for some minutes.
func failing(name string, minutes int, err error) ResourceStatus {
	since := noon.Add(-time.Duration(minutes) * time.Minute)
	return ResourceStatus{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: name},
		Status:   watershed.Status{Reflector: reflector.Status{StaleSince: since, Err: err, ErrAt: noon}},
	}
}

func TestStatus_problems(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no right"))
	refused := &reflector.Error{Reason: reflector.Refused, Err: errors.New("connection refused")}
	many := []ResourceStatus{}
	for i := range 13 {
		many = append(many, failing(fmt.Sprintf("r%02d", i), i, forbidden))
	}
	for name, c := range map[string]struct {
		is   Status
		want []Problem
	}{
		"live": {Status{State: Live}, nil},
		"unreachable": {
			Status{State: Connecting, Since: noon, Err: refused},
			[]Problem{{Reason: "Unreachable", Since: noon, Message: "connection refused"}},
		},
		"discovery": {
			Status{State: Connecting, Err: errors.Join(refused, refused)},
			[]Problem{{Reason: "Unreachable", Message: "connection refused"}},
		},
		"one type": {
			Status{State: Stale, Resources: 3, Failing: []ResourceStatus{failing("secrets", 5, forbidden)}},
			[]Problem{
				{
					Reason:    "Forbidden",
					Since:     noon.Add(-5 * time.Minute),
					Resources: []string{"secrets"},
					Message:   `secrets is forbidden: no right`,
				},
			},
		},
		"all types": {
			Status{
				State:     Stale,
				Resources: 2,
				Failing:   []ResourceStatus{failing("a", 5, refused), failing("b", 6, refused)},
			},
			[]Problem{{Reason: "Unreachable", Since: noon.Add(-6 * time.Minute), Message: "connection refused"}},
		},
		"two reasons": {
			Status{
				State:     Stale,
				Resources: 2,
				Failing:   []ResourceStatus{failing("a", 5, refused), failing("b", 6, forbidden)},
			},
			[]Problem{
				{
					Reason:    "Forbidden",
					Since:     noon.Add(-6 * time.Minute),
					Resources: []string{"b"},
					Message:   `secrets is forbidden: no right`,
				},
				{
					Reason:    "Unreachable",
					Since:     noon.Add(-5 * time.Minute),
					Resources: []string{"a"},
					Message:   "connection refused",
				},
			},
		},
		"many types": {
			Status{State: Stale, Resources: 60, Failing: many},
			[]Problem{{
				Reason: "Forbidden", Since: noon.Add(-12 * time.Minute), Resources: []string{
					"r00", "r01", "r02", "r03", "r04", "r05", "r06", "r07", "r08", "r09",
				}, More: 3,
				Message: `secrets is forbidden: no right`,
			}},
		},
		"concerns": {
			Status{
				State: Live, Joined: noon, Shadowed: []string{"directory /a"}, Removals: []Removal{
					{Resource: schema.GroupResource{Group: "x.io", Resource: "wells"}, At: noon},
				},
				Interruptions: flappingLimit, Interrupted: noon, Probe: Probe{
					Version: "v1.99.0", Skew: -time.Hour, Took: 3210 * time.Millisecond,
				},
				Identity:    upstream.Identity{Endpoint: "https://a", UID: "2"},
				Predecessor: upstream.Identity{Endpoint: "https://a", UID: "1"},
				JSON:        []schema.GroupResource{{Resource: "pods"}}, Unstored: errors.New("no UID"),
			},
			[]Problem{
				{Reason: "NameTaken", Message: "another cluster of this name is left out; it is in directory /a"},
				{
					Reason:  "NameTaken",
					Since:   noon,
					Message: "another cluster now has the address: its UID is 2, and was 1",
				},
				{
					Reason:    "TypeRemoved",
					Since:     noon,
					Resources: []string{"wells.x.io"},
					Message:   "the cluster has ceased to serve the resource; requests for it are answered with 404",
				},
				{
					Reason:  "Flapping",
					Since:   noon,
					Message: "the watches broke 3 times within 10 minutes and were resumed",
				},
				{Reason: "ClockSkew", Message: "the clock of the API server is 1h0m0s behind"},
				{Reason: "Slow", Message: "the API server took 3.2s to answer a request for its version"},
				{
					Reason: "ClusterIsNewer",
					Message: fmt.Sprintf("the cluster has Kubernetes v1.99.0, and this program has the types of "+
						"1.%d; 1 resources are read as JSON", KubernetesMinor),
				},
				{
					Reason:  "NotStored",
					Message: "the objects are not stored, and will be listed again after a restart: no UID",
				},
			},
		},
	} {
		if diff := cmp.Diff(c.want, c.is.Problems()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	long := Status{State: Connecting, Err: errors.New(strings.Repeat("x", 10_000))}.Problems()
	if n := len(long[0].Message); n > warning.MaxCause {
		t.Errorf("a message of %d bytes", n)
	}
}
