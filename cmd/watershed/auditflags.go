// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"log/slog"

	"github.com/watershed-project/watershed/cmd/watershed/internal/audit"
	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
)

// auditOptions are the flags for the audit log.
type auditOptions struct {
	path       string
	maxSize    int64 // MiB
	maxBackups int
}

func (o *auditOptions) declare(keys *config.Set) {
	keys.String(&o.path, "audit.log", "audit-log", "", "the `file` to which an audit event is appended for each request, as a line of JSON; - is the standard output (default none)")
	keys.Int64(&o.maxSize, "audit.maxSizeMiB", "audit-log-maxsize", 100, "how many `MiB` the audit log may have before a new file begins").
		AtLeast(1, "a file must have at least 1 MiB").Reloads()
	keys.Int(&o.maxBackups, "audit.maxBackups", "audit-log-maxbackup", 10, "how many old files of the audit log remain, called FILE.1 (the newest), FILE.2 and so on; 0 is none").
		AtLeast(0, "use 0 for no old files").Reloads()
}

// open returns the audit log, nil if there is none.
func (o *auditOptions) open(logger *slog.Logger) (*audit.Log, error) {
	if o.path == "" {
		return nil, nil
	}
	return audit.Open(audit.Options{Path: o.path, MaxSize: o.maxSize << 20, MaxBackups: o.maxBackups, Logger: logger})
}
