// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// klogger returns the logger for handlers without one of their own: the one in the
// options, which may be nil, or klog's.
func klogger(logs *slog.Logger) klog.Logger {
	if logs == nil {
		return klog.Background()
	}
	return logr.FromSlogHandler(logs.Handler())
}

// contextual is a [slog.Handler] that writes to the logger in the context of the
// informer's run, and to klog's before that. It is made before there is such a context.
type contextual struct{ current atomic.Pointer[slog.Handler] }

// use sets the logger to write to.
func (c *contextual) use(logger klog.Logger) {
	h := logr.ToSlogHandler(logger)
	c.current.Store(&h)
}

func (c *contextual) handler() slog.Handler {
	if h := c.current.Load(); h != nil {
		return *h
	}
	return logr.ToSlogHandler(klog.Background())
}

// Enabled implements [slog.Handler].
func (c *contextual) Enabled(ctx context.Context, level slog.Level) bool {
	return c.handler().Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (c *contextual) Handle(ctx context.Context, r slog.Record) error {
	return c.handler().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (c *contextual) WithAttrs(attrs []slog.Attr) slog.Handler {
	return derived{from: c, with: func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) }}
}

// WithGroup implements [slog.Handler].
func (c *contextual) WithGroup(name string) slog.Handler {
	return derived{from: c, with: func(h slog.Handler) slog.Handler { return h.WithGroup(name) }}
}

// derived adds attributes or a group to each record of another handler, whose logger may
// change.
type derived struct {
	from interface{ handler() slog.Handler }
	with func(slog.Handler) slog.Handler
}

func (d derived) handler() slog.Handler { return d.with(d.from.handler()) }

// Enabled implements [slog.Handler].
func (d derived) Enabled(ctx context.Context, level slog.Level) bool {
	return d.from.handler().Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (d derived) Handle(ctx context.Context, r slog.Record) error { return d.handler().Handle(ctx, r) }

// WithAttrs implements [slog.Handler].
func (d derived) WithAttrs(attrs []slog.Attr) slog.Handler {
	return derived{from: d, with: func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) }}
}

// WithGroup implements [slog.Handler].
func (d derived) WithGroup(name string) slog.Handler {
	return derived{from: d, with: func(h slog.Handler) slog.Handler { return h.WithGroup(name) }}
}
