// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/cmd/watershed/internal/defaults"
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
	// Timeout limits the check of a token and the read of the client CAs. Default: 10 s.
	Timeout time.Duration
	// CARefresh is how old the bundle of client CAs may become while the cluster responds.
	// Default: 60 s.
	CARefresh time.Duration
	// CAGrace is how long the last bundle is used if the cluster does not respond.
	// Default: 1 h.
	CAGrace time.Duration
	// Logger receives the causes of the errors that callers do not see. Default:
	// slog.Default().
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	defaults.Set(&d.CacheTTL, 10*time.Second)
	defaults.Set(&d.Timeout, 10*time.Second)
	defaults.Set(&d.CARefresh, time.Minute)
	defaults.Set(&d.CAGrace, time.Hour)
	d.Logger = cmp.Or(d.Logger, slog.Default())
	return d
}

// Cluster authenticates the callers of one cluster. All methods are safe for concurrent
// use.
type Cluster struct {
	journal   *journal
	authority *document[*bundle]
	tokens    *tokens
}

// New returns an authenticator that asks the cluster behind the connection c. It does not
// send a request. Its caller must call Close, and make another one when the connection or
// the cluster changes: everything that it remembers belongs to this cluster.
func New(c *kube.Cluster, opts *Options) *Cluster {
	o := opts.withDefaults()
	j := newJournal(o.Logger.With("cluster", c.Name()))
	review := func(context.Context, string) (*Identity, error) { return nil, unavailable(reviewUnavailable) }
	if v, err := newReviewer(c, o.Audiences, j); err == nil {
		review = v.review
	} else {
		j.report("cannot check tokens", err.Error())
	}
	return &Cluster{
		journal:   j,
		authority: newDocument(o.CARefresh, o.CAGrace, o.Timeout, authorityUnavailable, authority{c, j}.fetch),
		tokens:    newTokens(o.CacheTTL, o.Timeout, reviewUnavailable, review),
	}
}

// Authenticate returns the identity of the caller of r, or a status: 401 if r has no valid
// credentials, 503 if the cluster cannot be asked, 429 if there are too many unknown
// tokens. As in kube-apiserver, a valid client certificate has precedence over a token. The
// certificates are those of the TLS connection. Authenticate does not modify r: its caller
// must not pass the credentials on.
func (c *Cluster) Authenticate(ctx context.Context, r *http.Request) (*Identity, error) {
	var refusal error // of the certificate: 401, or 503 if it may be valid
	if presentsCertificate(r) {
		id, err := c.certificate(ctx, r, false)
		if err == nil {
			return id, nil
		}
		refusal = err
	}
	if t, ok := BearerToken(r); ok {
		id, err := c.tokens.authenticate(ctx, t, r.RemoteAddr)
		if !apierrors.IsUnauthorized(err) {
			return id, err
		}
	}
	if refusal == nil {
		refusal = unauthorized()
	}
	return nil, refusal
}

// Reauthenticate checks the credentials of r again, which had the identity id, without the
// caches; results that are younger than 2 s are shared. It returns a 401 if they are not
// valid any more, or if their user is another one or has lost a group, and a 503 if that
// is not known. It is meant for watches, which can outlive the credentials.
func (c *Cluster) Reauthenticate(ctx context.Context, r *http.Request, id *Identity) error {
	if id.expired(time.Now()) {
		return unauthorized()
	}
	var now *Identity
	var err error
	if id.Method == MethodCertificate {
		now, err = c.certificate(ctx, r, true)
	} else if t, ok := BearerToken(r); ok {
		now, err = c.tokens.again(ctx, t)
	} else {
		err = unauthorized()
	}
	if err != nil {
		return err
	}
	if !id.continues(now) {
		return unauthorized()
	}
	return nil
}

// Stats returns the counters.
func (c *Cluster) Stats() Stats {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	return c.tokens.stats
}

// Close cancels the requests to the cluster and waits for them. After that, Authenticate
// returns a 503 for everything that is not in its caches.
func (c *Cluster) Close() {
	c.tokens.close()
	c.authority.close()
}

func presentsCertificate(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.PeerCertificates) > 0
}

// certificate returns the identity of the certificate that the caller has presented.
func (c *Cluster) certificate(ctx context.Context, r *http.Request, fresh bool) (*Identity, error) {
	if !presentsCertificate(r) {
		return nil, unauthorized()
	}
	b, err := c.authority.get(ctx)
	if err != nil {
		return nil, err
	}
	id, err := b.identity(r.TLS.PeerCertificates, fresh)
	if err != nil {
		c.journal.logger.Debug("client certificate refused", "err", err)
		return nil, unauthorized()
	}
	return id, nil
}
