// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func volumeColumns() []column {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Capacity", spec["capacity"]),
		text("Access Modes", spec["accessModes"]),
		text("Reclaim Policy", spec["persistentVolumeReclaimPolicy"]),
		text("Status", status["phase"]),
		text("Claim", spec["claimRef"]),
		text("StorageClass", "StorageClass of the pv"),
		text("VolumeAttributesClass", "VolumeAttributesClass of the pv"),
		text("Reason", status["reason"]),
		ageColumn,
		wide(text("VolumeMode", spec["volumeMode"])),
	}
}

func volumeCells(volume *corev1.PersistentVolume, now time.Time) []any {
	claim := ""
	if ref := volume.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	phase := string(volume.Status.Phase)
	if volume.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	class, ok := volume.Annotations[corev1.BetaStorageClassAnnotation]
	if !ok {
		class = volume.Spec.StorageClassName
	}
	capacity := volume.Spec.Capacity[corev1.ResourceStorage]
	return []any{
		volume.Name, capacity.String(), accessModes(volume.Spec.AccessModes), string(volume.Spec.PersistentVolumeReclaimPolicy),
		phase, claim, class, deref(volume.Spec.VolumeAttributesClassName, unset), volume.Status.Reason,
		age(volume.CreationTimestamp, now), string(deref(volume.Spec.VolumeMode, unset)),
	}
}

func claimColumns() []column {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Status", status["phase"]),
		text("Volume", spec["volumeName"]),
		text("Capacity", status["capacity"]),
		text("Access Modes", status["accessModes"]),
		text("StorageClass", "StorageClass of the pvc"),
		text("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
		ageColumn,
		wide(text("VolumeMode", spec["volumeMode"])),
	}
}

func claimCells(claim *corev1.PersistentVolumeClaim, now time.Time) []any {
	phase := string(claim.Status.Phase)
	if claim.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	class, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if !ok {
		class = deref(claim.Spec.StorageClassName, "")
	}
	var capacity, modes string
	if claim.Spec.VolumeName != "" {
		storage := claim.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = storage.String(), accessModes(claim.Status.AccessModes)
	}
	return []any{
		claim.Name, phase, claim.Spec.VolumeName, capacity, modes, class, deref(claim.Spec.VolumeAttributesClassName, unset),
		age(claim.CreationTimestamp, now), string(deref(claim.Spec.VolumeMode, unset)),
	}
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		text string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			short = append(short, m.text)
		}
	}
	return strings.Join(short, ",")
}
