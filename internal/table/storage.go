// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func storageClassPrinter() *Printer {
	return &Printer{columns: storageClassColumns(), cells: of(storageClassCells), mark: markDefaultClass}
}

func storageClassColumns() []column {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Provisioner", doc["provisioner"]),
		text("ReclaimPolicy", doc["reclaimPolicy"]),
		text("VolumeBindingMode", doc["volumeBindingMode"]),
		text("AllowVolumeExpansion", doc["allowVolumeExpansion"]),
		ageColumn,
	}
}

func storageClassCells(o *storagev1.StorageClass, now time.Time) []any {
	return []any{
		o.Name, o.Provisioner, string(deref(o.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
		string(deref(o.VolumeBindingMode, storagev1.VolumeBindingImmediate)), deref(o.AllowVolumeExpansion, false),
		age(o.CreationTimestamp, now),
	}
}

func attributesClassColumns() []column {
	return []column{
		nameColumn, text("DriverName", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]), ageColumn,
	}
}

func attributesClassCells(o *storagev1.VolumeAttributesClass, now time.Time) []any {
	return []any{o.Name, o.DriverName, age(o.CreationTimestamp, now)}
}

func attachmentColumns() []column {
	spec := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	attacher := text("Attacher", spec["attacher"])
	attacher.Format = "name"
	return []column{
		nameColumn,
		attacher,
		text("PV", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]),
		text("Node", spec["nodeName"]),
		boolean("Attached", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]),
		ageColumn,
	}
}

func attachmentCells(o *storagev1.VolumeAttachment, now time.Time) []any {
	return []any{
		o.Name, o.Spec.Attacher, deref(o.Spec.Source.PersistentVolumeName, ""), o.Spec.NodeName, o.Status.Attached,
		age(o.CreationTimestamp, now),
	}
}

func csiNodeColumns() []column {
	return []column{
		nameColumn, integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node"), ageColumn,
	}
}

func csiNodeCells(o *storagev1.CSINode, now time.Time) []any {
	return []any{o.Name, int64(len(o.Spec.Drivers)), age(o.CreationTimestamp, now)}
}

func csiDriverColumns() []column {
	spec := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return []column{
		nameColumn,
		boolean("AttachRequired", spec["attachRequired"]),
		boolean("PodInfoOnMount", spec["podInfoOnMount"]),
		boolean("StorageCapacity", spec["storageCapacity"]),
		text("TokenRequests", spec["tokenRequests"]),
		boolean("RequiresRepublish", spec["requiresRepublish"]),
		text("Modes", spec["volumeLifecycleModes"]),
		ageColumn,
	}
}

func csiDriverCells(o *storagev1.CSIDriver, now time.Time) []any {
	var modes, audiences []string
	for _, m := range o.Spec.VolumeLifecycleModes {
		modes = append(modes, string(m))
	}
	for _, t := range o.Spec.TokenRequests {
		audiences = append(audiences, t.Audience)
	}
	tokens := unset
	if o.Spec.TokenRequests != nil {
		tokens = strings.Join(audiences, ",")
	}
	return []any{
		o.Name, deref(o.Spec.AttachRequired, true), deref(o.Spec.PodInfoOnMount, false),
		deref(o.Spec.StorageCapacity, false),
		tokens, deref(o.Spec.RequiresRepublish, false), or(strings.Join(modes, ","), none),
		age(o.CreationTimestamp, now),
	}
}

// defaultAnnotations mark the default storage class.
var defaultAnnotations = []string{
	"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class",
}

// markDefaultClass marks the class that claims without a class use: the newest of those
// that are annotated as the default, and of these the first by name. A class that is
// printed alone is not marked.
func markDefaultClass(list []runtime.Object, rows []metav1.TableRow) {
	var chosen *storagev1.StorageClass
	at := -1
	for i, obj := range list {
		class, ok := obj.(*storagev1.StorageClass)
		if !ok || !isDefault(class) || chosen != nil && !precedes(class, chosen) {
			continue
		}
		chosen, at = class, i
	}
	if chosen != nil {
		rows[at].Cells[0] = chosen.Name + " (default)"
	}
}

func isDefault(class *storagev1.StorageClass) bool {
	for _, a := range defaultAnnotations {
		if class.Annotations[a] == "true" {
			return true
		}
	}
	return false
}

func precedes(a, b *storagev1.StorageClass) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.After(b.CreationTimestamp.Time)
	}
	return a.Name < b.Name
}

func volumeColumns() []column {
	spec := corev1.PersistentVolumeSpec{}.SwaggerDoc()
	status := corev1.PersistentVolumeStatus{}.SwaggerDoc()
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
		volume.Name, capacity.String(), accessModes(volume.Spec.AccessModes),
		string(volume.Spec.PersistentVolumeReclaimPolicy),
		phase, claim, class, deref(volume.Spec.VolumeAttributesClassName, unset), volume.Status.Reason,
		age(volume.CreationTimestamp, now), string(deref(volume.Spec.VolumeMode, unset)),
	}
}

func claimColumns() []column {
	spec := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()
	status := corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
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
		claim.Name, phase, claim.Spec.VolumeName, capacity, modes, class,
		deref(claim.Spec.VolumeAttributesClassName, unset),
		age(claim.CreationTimestamp, now), string(deref(claim.Spec.VolumeMode, unset)),
	}
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		text string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			short = append(short, m.text)
		}
	}
	return strings.Join(short, ",")
}
