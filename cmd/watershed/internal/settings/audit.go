// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"log/slog"

	"github.com/watershed-project/watershed/cmd/watershed/internal/audit"
	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
)

// Audit are the flags for the audit log.
type Audit struct {
	path       string
	MaxSize    int64 // MiB
	MaxBackups int
}

func (o *Audit) declare(in config.Section) {
	in.String(&o.path, "audit.log", "audit-log", "", "the `file` to which an audit event is appended for each "+
		"request, as a line of JSON; - is the standard output (default none)")
	in.Int64(&o.MaxSize, "audit.maxSizeMiB", "audit-log-maxsize", 100,
		"how many `MiB` the audit log may have before a new file begins").
		AtLeast(1, "a file must have at least 1 MiB").Reloads()
	in.Int(&o.MaxBackups, "audit.maxBackups", "audit-log-maxbackup", 10,
		"how many old files of the audit log remain, called FILE.1 (the newest), FILE.2 and so on; 0 is none").
		AtLeast(0, "use 0 for no old files").Reloads()
}

// Open returns the audit log, nil if there is none.
func (o *Audit) Open(logger *slog.Logger) (*audit.Log, error) {
	if o.path == "" {
		return nil, nil
	}
	return audit.Open(audit.Options{Path: o.path, MaxSize: o.MaxSize << 20, MaxBackups: o.MaxBackups, Logger: logger})
}
