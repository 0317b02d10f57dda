// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// maxDocument limits responses that are read as a whole, in bytes after
	// decompression: discovery documents. Ten thousand custom types make one of about 5
	// MB.
	maxDocument = 16 << 20
	// maxParts limits the number of JSON objects in such a response: one of two bytes
	// takes about 300 when it is decoded.
	maxParts = 400_000
	// documentsAtOnce limits how many such responses of a cluster are read and decoded at
	// once. Every mirror whose resource is not found requests some.
	documentsAtOnce = 2
	// maxResources limits the resources of a discovery that takes a request for each
	// version of each group.
	maxResources = 100_000
	// maxHeader limits the headers of a response, in bytes. A watch keeps them as long as
	// it lasts.
	maxHeader = 64 << 10
	// maxRedirects limits how many redirects of a request are followed.
	maxRedirects = 3
)

// Options configures a [Cluster]. A nil pointer and the zero value mean the defaults.
type Options struct {
	// Name is the name of the cluster in errors. Default: host and port of the API
	// server.
	Name string
	// Traffic, if it is not nil, counts the requests of the cluster.
	Traffic *Traffic
	// Wrap, if it is not nil, wraps the transport of the cluster's own requests. It is outside
	// the part that adds the credentials, so it does not see them.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Cluster is one Kubernetes cluster. All methods are safe for concurrent use.
type Cluster struct {
	name   string
	config *rest.Config // never modified
	root   *url.URL     // of the API
	client *http.Client
	// apart returns a client that does not share connections between requests.
	apart func() *http.Client
	// traffic may be nil.
	traffic *Traffic
	// reading has a token for each document that is being read.
	reading chan struct{}
	// readinessForbidden is set when the server has answered 403 to /readyz for startingFor:
	// then the client lacks the right, and UID does not wait again.
	readinessForbidden atomic.Bool

	catalogue catalogue
	// callers are for the requests of others.
	callers callers
}

// FromConfig returns the cluster for cfg. It ignores the request rate limits and the
// encodings in cfg. It does not send a request.
func FromConfig(cfg *rest.Config, opts *Options) (*Cluster, error) {
	if cfg == nil {
		return nil, errors.New("cluster: no configuration")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	c := &Cluster{
		name:      o.Name,
		traffic:   o.Traffic,
		config:    rest.CopyConfig(cfg),
		catalogue: newCatalogue(),
		reading:   make(chan struct{}, documentsAtOnce),
	}

	c.callers.check = newCallersCheck(c.checkCallers)
	if c.config.UserAgent == "" {
		c.config.UserAgent = rest.DefaultKubernetesUserAgent()
	}

	// Settings for one API group do not apply to a client of all groups. The timeout
	// would end every watch, so send applies it.
	own := c.Config()
	own.GroupVersion, own.APIPath, own.Timeout = nil, "", 0
	root, _, err := rest.DefaultServerUrlFor(own)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", o.Name, err)
	}
	c.root = root
	if c.name == "" {
		c.name = root.Host
	}
	if c.client, err = newClient(own, o.Wrap); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.name, err)
	}
	c.apart = sync.OnceValue(func() *http.Client {
		single := rest.CopyConfig(own)
		single.NextProtos = []string{"http/1.1"}
		if client, err := newClient(single, o.Wrap); err == nil {
			return client
		}
		return c.client // the configuration has a transport of its own
	})
	return c, nil
}

// newClient returns a client for a configuration. Wrap, if it is not nil, wraps its transport.
func newClient(cfg *rest.Config, wrap func(http.RoundTripper) http.RoundTripper) (*http.Client, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	own := &http.Client{Transport: client.Transport, CheckRedirect: checkRedirect}
	if wrap != nil {
		own.Transport = wrap(cmp.Or(own.Transport, http.DefaultTransport))
	}
	return own, nil
}

// checkRedirect refuses redirects to another server: the transport would send the
// credentials there, and that server may be one that only this program can reach.
func checkRedirect(next *http.Request, before []*http.Request) error {
	if first := before[0].URL; next.URL.Scheme != first.Scheme || next.URL.Host != first.Host {
		return errors.New("redirects to another server are not followed")
	}
	if len(before) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	return nil
}

// headerSize returns about how many bytes headers take.
func headerSize(h http.Header) int {
	n := 0
	for name, values := range h {
		n += len(name)
		for _, v := range values {
			n += len(v) + 16
		}
	}
	return n
}

// Name returns the name of the cluster in errors.
func (c *Cluster) Name() string { return c.name }

// Config returns a copy of the configuration that the cluster was made from, for clients
// that write: dynamic.NewForConfig(c.Config()) returns a dynamic client of the same
// cluster, and kubernetes.NewForConfig(c.Config()) a clientset. Unlike the cluster, they
// apply the rate limits in it: by default 5 requests per second.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Unverified returns why nothing proves that the server belongs to the cluster, "" if the
// certificate of the server is verified.
func (c *Cluster) Unverified() string {
	switch {
	case c.root.Scheme != "https":
		return "its address is not one of https"
	case c.config.Insecure:
		return "its certificate is not verified (insecure-skip-tls-verify)"
	}
	return ""
}

// CloseIdleConnections closes the connections that do not carry a request. Clusters with
// equal configurations share their connections.
func (c *Cluster) CloseIdleConnections() {
	utilnet.CloseIdleConnectionsFor(c.client.Transport)
	c.callers.closeIdle()
}

// send makes the request and returns when the headers of a successful response have
// arrived. The caller must close the response.
func (c *Cluster) send(ctx context.Context, r *request) (*response, error) {
	u := c.root.JoinPath(r.path...)
	u.RawQuery = r.query.Encode()
	own, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(own, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		cancel(listwatch.ErrClosed)
		return nil, fmt.Errorf("%s: %w", r.Doing, err)
	}
	req.Header.Set("Accept", r.accept)
	if !c.config.DisableCompression {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp := &response{request: r.Request, asked: ctx, own: own, cancel: cancel}
	if limit := c.config.Timeout; limit > 0 {
		resp.timer = time.AfterFunc(limit, func() { cancel(fmt.Errorf("no answer within %s", limit)) })
	}
	verb := r.verb()
	c.traffic.begin(verb)
	client := c.client
	if r.apart {
		client = c.apart()
	}
	resp.Response, err = client.Do(req)
	if err != nil {
		c.traffic.fail()
		err = resp.failed(err)
		resp.close()
		return nil, err
	}
	if n := headerSize(resp.Header); n > maxHeader {
		resp.close()
		return nil, &reflector.Error{Err: fmt.Errorf("%s: the headers of the response have %d bytes", r.Doing, n)}
	}
	c.traffic.count(resp.Response, verb)
	uncompress(resp.Response)
	c.warn(ctx, resp.Header)
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		c.traffic.fail()
		err := resp.refused(r)
		resp.close()
		return nil, err
	}
	if r.stream && resp.timer != nil {
		resp.timer.Stop()
	}
	return resp, nil
}

// warn passes the server's warnings to the warning handler of the configuration.
func (c *Cluster) warn(ctx context.Context, h http.Header) {
	if c.config.WarningHandler == nil && c.config.WarningHandlerWithContext == nil {
		return
	}
	// Warnings that cannot be parsed are ignored.
	warnings, _ := utilnet.ParseWarningHeaders(h["Warning"])
	for _, w := range warnings {
		if handler := c.config.WarningHandlerWithContext; handler != nil {
			handler.HandleWarningHeaderWithContext(ctx, w.Code, w.Agent, w.Text)
		} else {
			c.config.WarningHandler.HandleWarningHeader(w.Code, w.Agent, w.Text)
		}
	}
}

// document sends a request, reads the whole body, and calls decode with it. Few documents
// are in memory at once.
func (c *Cluster) document(ctx context.Context, r *request, decode func(body []byte, h http.Header) error) error {
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return r.Ended(ctx)
	}
	resp, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return resp.failed(err)
	}
	if len(body) > maxDocument {
		return fmt.Errorf("%s: the response is longer than %d bytes", r.Doing, maxDocument)
	}
	if bytes.Count(body, []byte{'{'}) > maxParts {
		return fmt.Errorf("%s: the response has more than %d objects", r.Doing, maxParts)
	}
	if err := decode(body, resp.Header); err != nil {
		return fmt.Errorf("%s: %w", r.Doing, err)
	}
	return nil
}

// object sends a request and reads the one object of the response.
func (c *Cluster) object(ctx context.Context, r *request, kind *wire.Kind) (*wire.Object, error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.close()
	encoding, err := resp.encoding()
	if err != nil {
		return nil, err
	}
	obj, err := stream.ReadObject(resp.Body, encoding, kind)
	if err != nil {
		return nil, resp.unreadable(err)
	}
	resp.drain()
	return obj, nil
}
