// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"log/slog"
	"net/http"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
)

// maxWrite limits the bytes of a request that is passed on. It is the limit of kube-apiserver.
const maxWrite = 3 << 20

// frontOptions returns the options of the HTTPS server. If requests are passed on, writes must fit.
func frontOptions(
	o *settings.Listening, certs serving.Certificates, passThrough bool, logger *slog.Logger,
) *serving.Options {
	opts := &serving.Options{
		Certificates: certs, StrictTransport: o.CertFile != "",
		Connections: o.Connections, ConnectionsPerAddress: o.PerAddress,
		LongRunning: isWatch, ReadinessDelay: o.ShutdownDelay, Grace: o.ShutdownBy, Logger: logger,
	}
	if passThrough {
		opts.MaxBody = maxWrite
	}
	return opts
}

// isWatch reports whether a request is a watch or follows a log, by the rule of
// kube-apiserver. One that it does not recognize ends with the grace period.
func isWatch(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	query := r.URL.Query()
	for _, name := range []string{"watch", "follow"} {
		if values, ok := query[name]; ok && values[0] != "0" && values[0] != "false" {
			return true
		}
	}
	return false
}
