// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func deviceClaimColumns() []column {
	return []column{
		nameColumn, text("State", "A summary of the current state (allocated, pending, reserved, etc.)."), ageColumn,
	}
}

func deviceClaimCellsV1(o *resourcev1.ResourceClaim, now time.Time) []any {
	return deviceClaimCells(&o.ObjectMeta, o.Status.Allocation != nil, len(o.Status.ReservedFor) > 0, now)
}

func deviceClaimCellsV1beta2(o *resourcev1beta2.ResourceClaim, now time.Time) []any {
	return deviceClaimCells(&o.ObjectMeta, o.Status.Allocation != nil, len(o.Status.ReservedFor) > 0, now)
}

func deviceClaimCellsV1beta1(o *resourcev1beta1.ResourceClaim, now time.Time) []any {
	return deviceClaimCells(&o.ObjectMeta, o.Status.Allocation != nil, len(o.Status.ReservedFor) > 0, now)
}

func deviceClaimCells(o *metav1.ObjectMeta, allocated, reserved bool, now time.Time) []any {
	var state []string
	if o.DeletionTimestamp != nil {
		state = append(state, "deleted")
	}
	switch {
	case allocated && reserved:
		state = append(state, "allocated", "reserved")
	case allocated:
		state = append(state, "allocated")
	case o.DeletionTimestamp == nil:
		state = append(state, "pending")
	}
	return []any{o.Name, strings.Join(state, ","), age(o.CreationTimestamp, now)}
}

func deviceSliceColumns() []column {
	spec := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Node", spec["nodeName"]),
		text("Driver", spec["driver"]),
		text("Pool", resourcev1.ResourcePool{}.SwaggerDoc()["name"]),
		ageColumn,
	}
}

func deviceSliceCellsV1(o *resourcev1.ResourceSlice, now time.Time) []any {
	return []any{o.Name, deref(o.Spec.NodeName, ""), o.Spec.Driver, o.Spec.Pool.Name, age(o.CreationTimestamp, now)}
}

func deviceSliceCellsV1beta2(o *resourcev1beta2.ResourceSlice, now time.Time) []any {
	return []any{o.Name, deref(o.Spec.NodeName, ""), o.Spec.Driver, o.Spec.Pool.Name, age(o.CreationTimestamp, now)}
}

func deviceSliceCellsV1beta1(o *resourcev1beta1.ResourceSlice, now time.Time) []any {
	return []any{o.Name, o.Spec.NodeName, o.Spec.Driver, o.Spec.Pool.Name, age(o.CreationTimestamp, now)}
}

func taintColumns() []column {
	doc := resourcev1.DeviceTaint{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Key", doc["key"]),
		text("Value", doc["value"]),
		text("Effect", doc["effect"]),
		text("TimeAdded", doc["timeAdded"]),
		ageColumn,
	}
}

func taintCellsV1(o *resourcev1.DeviceTaintRule, now time.Time) []any {
	t := &o.Spec.Taint
	return taintCells(&o.ObjectMeta, t.Key, t.Value, string(t.Effect), t.TimeAdded, now)
}

func taintCellsV1beta2(o *resourcev1beta2.DeviceTaintRule, now time.Time) []any {
	t := &o.Spec.Taint
	return taintCells(&o.ObjectMeta, t.Key, t.Value, string(t.Effect), t.TimeAdded, now)
}

func taintCellsV1alpha3(o *resourcev1alpha3.DeviceTaintRule, now time.Time) []any {
	t := &o.Spec.Taint
	return taintCells(&o.ObjectMeta, t.Key, t.Value, string(t.Effect), t.TimeAdded, now)
}

func taintCells(o *metav1.ObjectMeta, key, value, effect string, added *metav1.Time, now time.Time) []any {
	since := ""
	if added != nil {
		since = age(*added, now)
	}
	return []any{o.Name, key, value, effect, since, age(o.CreationTimestamp, now)}
}

func poolColumns() []column {
	return []column{
		nameColumn,
		text("Driver", "The driver to query pools for."),
		text("Total", "Total number of devices across all pools."),
		text("Available", "Number of available devices across all pools."),
		text("Allocated", "Number of allocated devices across all pools."),
		text("Unavailable", "Number of unavailable devices across all pools."),
		text("Errors", "Number of pools with validation errors."),
		integer("Pools", "Total number of matching pools."),
		text("Status", "Processing status."),
		text("Completed", "Time since the observation completed."),
	}
}

func poolCells(o *resourcev1alpha3.ResourcePoolStatusRequest, now time.Time) []any {
	s := o.Status
	if s == nil {
		return []any{o.Name, o.Spec.Driver, "-", "-", "-", "-", "-", int64(0), "Pending", none}
	}
	pools := deref(s.PoolCount, 0)
	status, completed := "Pending", none
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Status != metav1.ConditionTrue {
			continue
		}
		if c.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionFailed {
			return []any{o.Name, o.Spec.Driver, "-", "-", "-", "-", "-", int64(pools), "Failed", none}
		}
		if c.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionComplete {
			status, completed = "Complete", age(c.LastTransitionTime, now)
			if shown := len(s.Pools); int(pools) > shown {
				status = fmt.Sprintf("Complete (%d/%d pools)", shown, pools)
			}
			break
		}
	}
	var total, available, allocated, unavailable, invalid int32
	for i := range s.Pools {
		p := &s.Pools[i]
		total += deref(p.TotalDevices, 0)
		available += deref(p.AvailableDevices, 0)
		allocated += deref(p.AllocatedDevices, 0)
		unavailable += deref(p.UnavailableDevices, 0)
		if p.ValidationError != nil {
			invalid++
		}
	}
	cells := []any{o.Name, o.Spec.Driver}
	for _, n := range []int32{total, available, allocated, unavailable, invalid} {
		cells = append(cells, strconv.Itoa(int(n)))
	}
	return append(cells, int64(pools), status, completed)
}
