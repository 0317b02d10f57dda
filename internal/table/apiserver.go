// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"cmp"
	"slices"
	"strings"
	"time"

	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	migrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// The kinds of this file extend the API. Their Go types are in modules of their own, so
// they are printed unstructured.

func apiServiceColumns() []column {
	return []column{
		nameColumn,
		text("Service", "The reference to the service that hosts this API endpoint."),
		text("Available", "Whether this service is available."),
		ageColumn,
	}
}

func apiServiceCells(o *unstructured.Unstructured, now time.Time) []any {
	service := "Local"
	if ref, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "service"); ok && ref != nil {
		service = nested(o.Object, "spec", "service", "namespace") + "/" + nested(o.Object, "spec", "service", "name")
	}
	available := "Unknown"
	for _, c := range objects(o.Object, "status", "conditions") {
		if c["type"] != "Available" {
			continue
		}
		available, _ = c["status"].(string)
		if reason, _ := c["reason"].(string); reason != "" && available != "True" {
			available += " (" + reason + ")"
		}
		break
	}
	return []any{o.GetName(), service, available, age(o.GetCreationTimestamp(), now)}
}

func definitionColumns() []column {
	return []column{
		nameColumn,
		text("Scope", "Cluster/Namespaced"),
		text("Versions", "Served versions"),
		createdColumn,
		wide(text("Group", "API group")),
		wide(text("Kind", "CustomResource kind")),
		wide(text("ShortNames", "Short names")),
		wide(boolean("Established", "Established status")),
	}
}

func definitionCells(o *unstructured.Unstructured, _ time.Time) []any {
	var versions []string
	for _, v := range objects(o.Object, "spec", "versions") {
		if served, _ := v["served"].(bool); !served {
			continue
		}
		name, _ := v["name"].(string)
		if stored, _ := v["storage"].(bool); stored {
			name += "(storage)"
		}
		versions = append(versions, name)
	}
	slices.Sort(versions)
	established := slices.ContainsFunc(objects(o.Object, "status", "conditions"), func(c map[string]any) bool {
		return c["type"] == "Established" && c["status"] == "True"
	})
	short, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "names", "shortNames")
	return []any{
		o.GetName(), nested(o.Object, "spec", "scope"), strings.Join(versions, ","), created(o.GetCreationTimestamp()),
		nested(o.Object, "spec", "group"), nested(o.Object, "spec", "names", "kind"), strings.Join(short, ","),
		established,
	}
}

// nested returns a string of an object, empty if it is absent.
func nested(o map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}

// objects returns the objects in a list of an object.
func objects(o map[string]any, path ...string) []map[string]any {
	field, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	list, _ := field.([]any)
	var found []map[string]any
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			found = append(found, m)
		}
	}
	return found
}

func storageVersionColumns() []column {
	status := internalv1alpha1.StorageVersionStatus{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("CommonEncodingVersion", status["commonEncodingVersion"]),
		text("StorageVersions", status["storageVersions"]),
		ageColumn,
	}
}

func storageVersionCells(o *internalv1alpha1.StorageVersion, now time.Time) []any {
	const shown = 3
	servers := o.Status.StorageVersions
	var list []string
	for _, s := range servers[:min(len(servers), shown)] {
		list = append(list, s.APIServerID+"="+s.EncodingVersion)
	}
	return []any{
		o.Name, deref(o.Status.CommonEncodingVersion, unset), or(clip(list, ",", len(servers)), unset),
		age(o.CreationTimestamp, now),
	}
}

func migrationColumns() []column {
	return []column{
		text("Name", metaDoc["name"]),
		text("Resource", "GroupResource to migrate"),
		text("Status", "Status of the migration"),
	}
}

func migrationCellsV1(o *migrationv1.StorageVersionMigration, _ time.Time) []any {
	return []any{o.Name, o.Spec.Resource.String(), migrationStatus(o.Status.Conditions)}
}

func migrationCellsV1beta1(o *migrationv1beta1.StorageVersionMigration, _ time.Time) []any {
	return []any{o.Name, o.Spec.Resource.String(), migrationStatus(o.Status.Conditions)}
}

// migrationStatus returns the last condition that is true.
func migrationStatus(conditions []metav1.Condition) string {
	status := "Unknown"
	for i := range conditions {
		c := &conditions[i]
		if c.Status != metav1.ConditionTrue {
			continue
		}
		switch migrationv1.MigrationConditionType(c.Type) {
		case migrationv1.MigrationRunning, migrationv1.MigrationFailed, migrationv1.MigrationSucceeded:
			status = c.Type
		}
	}
	return status
}

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
		text("NominalConcurrencyShares",
			flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]),
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
			queues = int64(q.Queues)
			hand = int64(q.HandSize)
			limit = int64(q.QueueLengthLimit)
		}
	}
	return []any{o.Name, string(o.Spec.Type), shares, queues, hand, limit, age(o.CreationTimestamp, now)}
}
