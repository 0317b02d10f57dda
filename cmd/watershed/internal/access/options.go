// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/defaults"
	"github.com/watershed-project/watershed/replica"
)

// Options configure a [Control].
type Options struct {
	// Owner is the token of the person that runs the server, "" if there is no owner. The
	// caller sets it only if the server listens on a loopback address.
	Owner string
	// Crossing says which identities may read below /fleet.
	Crossing Crossing
	// Local reports whether RBAC of a cluster is evaluated here, instead of asking the
	// cluster for each decision. Nil means that every cluster is asked.
	Local func(cluster string) bool
	// Admit bounds the work in progress, for each user. Done is called when the response is
	// complete. Nil means no bound.
	Admit func(r *http.Request, q *replica.Request, user string) (done func(), err error)
	// PassThrough is [replica.Options.PassThrough].
	PassThrough bool
	// Recheck is how often the right of a watch is checked. Default 30 s.
	Recheck time.Duration
	// Logger receives all messages. Default: slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	defaults.Set(&o.Recheck, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}
