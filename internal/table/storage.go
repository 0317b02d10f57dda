// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func (r registry) addStorage() {
	v1 := storagev1.SchemeGroupVersion
	class := storagev1.StorageClass{}.SwaggerDoc()
	r.add(v1, "StorageClass", &Printer{
		columns: []column{
			nameColumn,
			text("Provisioner", class["provisioner"]),
			text("ReclaimPolicy", class["reclaimPolicy"]),
			text("VolumeBindingMode", class["volumeBindingMode"]),
			text("AllowVolumeExpansion", class["allowVolumeExpansion"]),
			ageColumn,
		},
		cells: of(func(o *storagev1.StorageClass, now time.Time) []any {
			return []any{
				o.Name, o.Provisioner, string(deref(o.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
				string(deref(o.VolumeBindingMode, storagev1.VolumeBindingImmediate)), deref(o.AllowVolumeExpansion, false),
				age(o.CreationTimestamp, now),
			}
		}),
		mark: markDefaultClass,
	})
	r.add(v1, "VolumeAttributesClass", &Printer{
		columns: []column{nameColumn, text("DriverName", storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]), ageColumn},
		cells: of(func(o *storagev1.VolumeAttributesClass, now time.Time) []any {
			return []any{o.Name, o.DriverName, age(o.CreationTimestamp, now)}
		}),
	})
	attacher := text("Attacher", storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["attacher"])
	attacher.Format = "name"
	r.add(v1, "VolumeAttachment", &Printer{
		columns: []column{
			nameColumn,
			attacher,
			text("PV", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]),
			text("Node", storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["nodeName"]),
			boolean("Attached", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]),
			ageColumn,
		},
		cells: of(func(o *storagev1.VolumeAttachment, now time.Time) []any {
			return []any{
				o.Name, o.Spec.Attacher, deref(o.Spec.Source.PersistentVolumeName, ""), o.Spec.NodeName, o.Status.Attached,
				age(o.CreationTimestamp, now),
			}
		}),
	})
	r.add(v1, "CSINode", &Printer{
		columns: []column{nameColumn, integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node"), ageColumn},
		cells: of(func(o *storagev1.CSINode, now time.Time) []any {
			return []any{o.Name, int64(len(o.Spec.Drivers)), age(o.CreationTimestamp, now)}
		}),
	})
	driver := storagev1.CSIDriverSpec{}.SwaggerDoc()
	r.add(v1, "CSIDriver", &Printer{
		columns: []column{
			nameColumn,
			boolean("AttachRequired", driver["attachRequired"]),
			boolean("PodInfoOnMount", driver["podInfoOnMount"]),
			boolean("StorageCapacity", driver["storageCapacity"]),
			text("TokenRequests", driver["tokenRequests"]),
			boolean("RequiresRepublish", driver["requiresRepublish"]),
			text("Modes", driver["volumeLifecycleModes"]),
			ageColumn,
		},
		cells: of(driverCells),
	})
	r.add(v1, "CSIStorageCapacity", plain())
	r.add(nodev1.SchemeGroupVersion, "RuntimeClass", &Printer{
		columns: []column{nameColumn, text("Handler", ""), ageColumn},
		cells: of(func(o *nodev1.RuntimeClass, now time.Time) []any {
			return []any{o.Name, o.Handler, age(o.CreationTimestamp, now)}
		}),
	})
}

func driverCells(o *storagev1.CSIDriver, now time.Time) []any {
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
		o.Name, deref(o.Spec.AttachRequired, true), deref(o.Spec.PodInfoOnMount, false), deref(o.Spec.StorageCapacity, false),
		tokens, deref(o.Spec.RequiresRepublish, false), or(strings.Join(modes, ","), none), age(o.CreationTimestamp, now),
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
