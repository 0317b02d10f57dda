// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"time"

	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	migrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
