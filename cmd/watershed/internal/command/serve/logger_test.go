// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
)

// TestNewLogger checks that log lines of client-go go to the same log.
func TestNewLogger(t *testing.T) {
	var log bytes.Buffer
	for format, want := range map[string][]string{
		settings.LogText: {"level=INFO msg=ours", "level=INFO msg=theirs"},
		settings.LogJSON: {`"level":"INFO","msg":"ours"`, `"level":"INFO","msg":"theirs"`},
	} {
		log.Reset()
		newLogger(&log, format).Info("ours")
		klog.Warning("theirs")
		klog.SetSlogLogger(slog.New(slog.DiscardHandler))
		for _, text := range want {
			if got := log.String(); !strings.Contains(got, text) {
				t.Errorf("the log in %s has no %s:\n%s", format, text, got)
			}
		}
	}
}
