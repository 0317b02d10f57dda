// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"cmp"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func flowPrinter() *Printer {
	return &Printer{columns: flowColumns(), cells: of(flowCells), order: orderFlows}
}

func flowColumns() []column {
	spec := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("PriorityLevel", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]),
		text("MatchingPrecedence", spec["matchingPrecedence"]),
		text("DistinguisherMethod", spec["distinguisherMethod"]),
		ageColumn,
		text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
	}
}

func flowCells(o *flowcontrolv1.FlowSchema, now time.Time) []any {
	method := none
	if m := o.Spec.DistinguisherMethod; m != nil {
		method = string(m.Type)
	}
	dangling := "?"
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			dangling = string(c.Status)
			break
		}
	}
	return []any{
		o.Name, o.Spec.PriorityLevelConfiguration.Name, int64(o.Spec.MatchingPrecedence), method,
		age(o.CreationTimestamp, now), dangling,
	}
}

// orderFlows sorts flows in the order in which a request is matched against them.
func orderFlows(list []runtime.Object) {
	slices.SortFunc(list, func(a, b runtime.Object) int {
		x, isX := a.(*flowcontrolv1.FlowSchema)
		y, isY := b.(*flowcontrolv1.FlowSchema)
		if !isX || !isY {
			return 0
		}
		return cmp.Or(cmp.Compare(x.Spec.MatchingPrecedence, y.Spec.MatchingPrecedence), cmp.Compare(x.Name, y.Name))
	})
}

func levelColumns() []column {
	queuing := flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Type", flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]),
		text("NominalConcurrencyShares", flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]),
		text("Queues", queuing["queues"]),
		text("HandSize", queuing["handSize"]),
		text("QueueLengthLimit", queuing["queueLengthLimit"]),
		ageColumn,
	}
}

func levelCells(o *flowcontrolv1.PriorityLevelConfiguration, now time.Time) []any {
	var shares, queues, hand, limit any = none, none, none, none
	if l := o.Spec.Limited; l != nil {
		shares = int64(deref(l.NominalConcurrencyShares, 0))
		if q := l.LimitResponse.Queuing; q != nil {
			queues, hand, limit = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
		}
	}
	return []any{o.Name, string(o.Spec.Type), shares, queues, hand, limit, age(o.CreationTimestamp, now)}
}
