// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"errors"
	"time"

	"github.com/watershed-project/watershed/internal/storage"
)

// Report is the result of [Verify].
type Report struct {
	// InUse means that a process has the directory open. Files may change during the
	// verification, and a resource that is being written may be reported as damaged.
	InUse    bool
	Clusters []ClusterReport
}

// ClusterReport describes the files of one cluster.
type ClusterReport struct {
	// Name is the name of the cluster, empty if no file can be read.
	Name string
	// Bytes is the size of all files.
	Bytes int64
	// Since is when the oldest stored changes begin.
	Since time.Time
	// Resources and Objects count what is stored. Objects of damaged resources are not counted.
	Resources, Objects int
	// Err has the errors of all files that cannot be read, and of all resources that would be
	// listed again because of them. It is nil if there are none.
	Err error
}

// Verify reads all files of a directory and checks them. It changes nothing. Keys decrypts
// Secrets and may be nil; without it Secrets are not checked, and are reported as locked.
func Verify(path string, keys Keys) (*Report, error) {
	verified, err := storage.Verify(path, keys)
	if err != nil {
		return nil, err
	}
	r := &Report{InUse: verified.InUse}
	for i := range verified.Clusters {
		c := &verified.Clusters[i]
		report := ClusterReport{Name: c.Name, Bytes: c.Bytes, Since: c.Since, Resources: len(c.Mirrors), Err: c.Err}
		for _, m := range c.Mirrors {
			report.Objects, report.Err = report.Objects+m.Objects, errors.Join(report.Err, m.Err)
		}
		r.Clusters = append(r.Clusters, report)
	}
	return r, nil
}
