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
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// addDevices adds the kinds of dynamic resource allocation.
func (r registry) addDevices() {
	v1, v1beta2, v1beta1 := resourcev1.SchemeGroupVersion, resourcev1beta2.SchemeGroupVersion, resourcev1beta1.SchemeGroupVersion
	v1alpha3 := resourcev1alpha3.SchemeGroupVersion
	for _, version := range []schema.GroupVersion{v1, v1beta2, v1beta1} {
		r.add(version, "DeviceClass", nameAndAge())
		r.add(version, "ResourceClaimTemplate", nameAndAge())
	}

	claims := []column{nameColumn, text("State", "A summary of the current state (allocated, pending, reserved, etc.)."), ageColumn}
	r.add(v1, "ResourceClaim", &Printer{columns: claims, cells: of(func(o *resourcev1.ResourceClaim, now time.Time) []any {
		return deviceClaimCells(&o.ObjectMeta, o.Status.Allocation != nil, len(o.Status.ReservedFor) > 0, now)
	})})
	r.add(v1beta2, "ResourceClaim", &Printer{columns: claims, cells: of(func(o *resourcev1beta2.ResourceClaim, now time.Time) []any {
		return deviceClaimCells(&o.ObjectMeta, o.Status.Allocation != nil, len(o.Status.ReservedFor) > 0, now)
	})})
	r.add(v1beta1, "ResourceClaim", &Printer{columns: claims, cells: of(func(o *resourcev1beta1.ResourceClaim, now time.Time) []any {
		return deviceClaimCells(&o.ObjectMeta, o.Status.Allocation != nil, len(o.Status.ReservedFor) > 0, now)
	})})

	slice := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	slices := []column{
		nameColumn,
		text("Node", slice["nodeName"]),
		text("Driver", slice["driver"]),
		text("Pool", resourcev1.ResourcePool{}.SwaggerDoc()["name"]),
		ageColumn,
	}
	r.add(v1, "ResourceSlice", &Printer{columns: slices, cells: of(func(o *resourcev1.ResourceSlice, now time.Time) []any {
		return []any{o.Name, deref(o.Spec.NodeName, ""), o.Spec.Driver, o.Spec.Pool.Name, age(o.CreationTimestamp, now)}
	})})
	r.add(v1beta2, "ResourceSlice", &Printer{columns: slices, cells: of(func(o *resourcev1beta2.ResourceSlice, now time.Time) []any {
		return []any{o.Name, deref(o.Spec.NodeName, ""), o.Spec.Driver, o.Spec.Pool.Name, age(o.CreationTimestamp, now)}
	})})
	r.add(v1beta1, "ResourceSlice", &Printer{columns: slices, cells: of(func(o *resourcev1beta1.ResourceSlice, now time.Time) []any {
		return []any{o.Name, o.Spec.NodeName, o.Spec.Driver, o.Spec.Pool.Name, age(o.CreationTimestamp, now)}
	})})

	taint := resourcev1.DeviceTaint{}.SwaggerDoc()
	taints := []column{
		nameColumn,
		text("Key", taint["key"]),
		text("Value", taint["value"]),
		text("Effect", taint["effect"]),
		text("TimeAdded", taint["timeAdded"]),
		ageColumn,
	}
	r.add(v1, "DeviceTaintRule", &Printer{columns: taints, cells: of(func(o *resourcev1.DeviceTaintRule, now time.Time) []any {
		t := &o.Spec.Taint
		return taintCells(&o.ObjectMeta, t.Key, t.Value, string(t.Effect), t.TimeAdded, now)
	})})
	r.add(v1beta2, "DeviceTaintRule", &Printer{columns: taints, cells: of(func(o *resourcev1beta2.DeviceTaintRule, now time.Time) []any {
		t := &o.Spec.Taint
		return taintCells(&o.ObjectMeta, t.Key, t.Value, string(t.Effect), t.TimeAdded, now)
	})})
	r.add(v1alpha3, "DeviceTaintRule", &Printer{columns: taints, cells: of(func(o *resourcev1alpha3.DeviceTaintRule, now time.Time) []any {
		t := &o.Spec.Taint
		return taintCells(&o.ObjectMeta, t.Key, t.Value, string(t.Effect), t.TimeAdded, now)
	})})

	r.add(v1alpha3, "ResourcePoolStatusRequest", &Printer{
		columns: []column{
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
		},
		cells: of(poolCells),
	})
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

func taintCells(o *metav1.ObjectMeta, key, value, effect string, added *metav1.Time, now time.Time) []any {
	since := ""
	if added != nil {
		since = age(*added, now)
	}
	return []any{o.Name, key, value, effect, since, age(o.CreationTimestamp, now)}
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
