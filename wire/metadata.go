// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"strconv"
	"time"

	"github.com/watershed-project/watershed/internal/scan"
)

// ResourceVersion returns the object's version as the API server wrote it.
func (o *Object) ResourceVersion() string {
	if o.version != 0 {
		return strconv.FormatUint(o.version, 10)
	}
	raw, opened := o.open()
	defer opened.Free()
	var h scan.Header
	if o.encoding == JSON {
		_ = h.ScanJSON(raw) // newObject has scanned the same bytes without an error
	} else {
		_ = h.ScanProtobuf(raw)
	}
	return string(h.Version)
}

// Created returns metadata.creationTimestamp, which is in seconds, and the zero time if the
// object has none. It does not decode the object.
func (o *Object) Created() time.Time {
	raw, opened := o.open()
	defer opened.Free()
	return scan.Created(raw, o.encoding == JSON)
}

// Managers returns the names of the field managers that led from an older state of the
// object to this one, in order. It compares metadata.managedFields of both; an older state
// that is nil or has none counts as one without entries. It does not decode the objects.
//
// An API server records when a manager last wrote, in seconds. So several names are
// returned if it cannot be known which of them wrote, and none if the object has no managed
// fields.
func (o *Object) Managers(old *Object) []string {
	now := o.managed()
	var before []scan.ManagedEntry
	if old != nil {
		before = old.managed()
	}
	return scan.Managers(now, before)
}

// managed returns the entries of metadata.managedFields, as far as they can be read.
func (o *Object) managed() []scan.ManagedEntry {
	raw, opened := o.open()
	defer opened.Free()
	return scan.Managed(raw, o.encoding == JSON)
}

// LastManager returns the field manager that wrote last, by the times in
// metadata.managedFields. It is "" if another wrote a few seconds before, because API
// servers may have different clocks, and if there are no managed fields. Unlike Managers it
// needs no older state, and reads an object in protobuf without decoding it.
func (o *Object) LastManager() string {
	raw, opened := o.open()
	defer opened.Free()
	return scan.LastManager(raw, o.encoding == JSON)
}
