// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/cmd/watershed/internal/audit"
	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
)

func TestAuditOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for _, c := range []struct {
		args []string
		want string // in the error
		log  bool
	}{
		{nil, "", false},
		{[]string{"--audit-log", path}, "", true},
		{[]string{"--audit-log", "-"}, "", true},
		{[]string{"--audit-log", path, "--audit-log-maxbackup", "0"}, "", true},
		{[]string{"--audit-log", filepath.Dir(path)}, "not a regular file", false},
		{[]string{"--audit-log-maxsize", "0"}, "--audit-log-maxsize 0", false},
		{[]string{"--audit-log-maxbackup", "-1"}, "--audit-log-maxbackup", false},
	} {
		o, err := commandtest.ParseOptions(c.args...)
		var log *audit.Log
		if err == nil {
			log, err = o.Audit.Open(slog.New(slog.DiscardHandler))
		}
		if (log != nil) != c.log || (err != nil) != (c.want != "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: log %v, error %v", c.args, log != nil, err)
		}
		if log != nil {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := log.Run(ctx); err != nil { // it closes the file
				t.Error(err)
			}
		}
	}
	if is, err := os.Stat(path); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v: %v", is, err)
	}
}

// The log ends after the part, and the error of the part is returned.
