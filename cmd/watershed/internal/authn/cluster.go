// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/kube"
)

// Options configures a [Cluster]. A nil pointer and the zero value mean the defaults.
type Options struct {
	// Audiences are sent with every TokenReview. A token is accepted only if the cluster
	// confirms at least one of them. Default: none, which means the audiences of the
	// cluster's API server.
	Audiences []string
	// CacheTTL is how long the result of a TokenReview is used. Default: 10 s.
	CacheTTL time.Duration
	// Timeout limits one request to the cluster. Default: 10 s.
	Timeout time.Duration
	// CARefresh is how old the bundle of client CAs may become while it is used. Default:
	// 60 s.
	CARefresh time.Duration
	// CAGrace is how long the last bundle is used if the cluster does not respond.
	// Default: 1 h.
	CAGrace time.Duration
	// Logger receives the causes of the errors that callers do not see. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Cluster authenticates the callers of one cluster. All methods are safe for concurrent
// use.
type Cluster struct{}

// New returns the authenticator for the connection c. It does not send a request. The
// owner must call Close.
func New(c *kube.Cluster, opts *Options) *Cluster { return &Cluster{} }

// Authenticate returns the identity of the caller of r.
func (c *Cluster) Authenticate(ctx context.Context, r *http.Request) (*Identity, error) {
	return nil, nil
}

// Reauthenticate checks the credentials of r again.
func (c *Cluster) Reauthenticate(ctx context.Context, r *http.Request, id *Identity) error {
	return nil
}

// Close cancels the requests to the cluster and waits for them.
func (c *Cluster) Close() {}
