// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"strings"
	"testing"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
)

// TestMetrics_listen refuses addresses without a host.
func TestMetrics_listen(t *testing.T) {
	for address, want := range map[string]string{
		":0": "name the host", "nonsense": "missing port", "192.0.2.1:0": "assign requested address",
	} {
		_, err := (&Settings{metricsListen: address}).ListenMetrics(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--metrics-listen %s: %v, want an error with %q", address, err, want)
		}
	}
}

// TestListenLoopback listens on addresses of this machine.
func TestListenLoopback(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "127.1.2.3:0", "localhost:0"} {
		l, err := listenLoopback(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if !serving.IsLoopback(l) {
			t.Errorf("%s listens on %s", address, l.Addr())
		}
		l.Close()
	}
}
