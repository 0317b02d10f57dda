// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// pageSize is the number of objects that List requests per page.
const pageSize = 500

// List calls each for every object of the query, page by page, and returns the version of
// the list. If each fails, List stops and returns its error. If a list takes longer than
// the server keeps versions, it fails with reason [reflector.Expired]. Objects that
// cannot be read are left out; in that case List continues to the end and then returns
// the version with an error of reason [reflector.Undecodable].
func (c *Cluster) List(ctx context.Context, q Query, each func(*wire.Object) error) (version string, err error) {
	source, err := c.Source(q)
	if err != nil {
		return "", err
	}
	var skipped []error
	for opts := (reflector.ListOptions{Limit: pageSize}); ; {
		page, err := source.List(ctx, opts, each)
		if err != nil {
			return "", err
		}
		skipped = append(skipped, page.Skipped...)
		if page.Continue == "" {
			version = page.Version
			break
		}
		opts.Continue = page.Continue
	}
	if len(skipped) > 0 {
		err = &reflector.Error{
			Reason: reflector.Undecodable, Err: fmt.Errorf("%w (objects left out: %d)", skipped[0], len(skipped)),
		}
	}
	return version, err
}

// Watch yields the events of one watch that begins after version, which is usually the
// one that List returned. It ends without an error when the server ends the watch, which
// it does after half an hour or more. It also ends when ctx ends, and after any other
// error, which is the last item it yields. Only after an error of reason
// [reflector.Undecodable], which concerns a single object, does it continue.
func (c *Cluster) Watch(ctx context.Context, q Query, version string) iter.Seq2[reflector.Event[*wire.Object], error] {
	return func(yield func(reflector.Event[*wire.Object], error) bool) {
		source, err := c.Source(q)
		if err != nil {
			yield(reflector.Event[*wire.Object]{}, err)
			return
		}
		w, err := source.watch(ctx, reflector.WatchOptions{Version: version})
		if err != nil {
			yield(reflector.Event[*wire.Object]{}, err)
			return
		}
		defer w.Close()
		for {
			event, err := w.Next()
			if err == io.EOF { //nolint:errorlint // Next promises exactly that
				return
			}
			if !yield(event, err) || err != nil && !isReason(err, reflector.Undecodable) {
				return
			}
		}
	}
}

// Get returns one object. The query must have no selectors and, if the resource is
// namespaced, a namespace. If there is no such object, [apierrors.IsNotFound] is true for
// the error.
func (c *Cluster) Get(ctx context.Context, q Query, name string) (*wire.Object, error) {
	source, err := c.Source(q)
	if err != nil {
		return nil, err
	}
	if q.LabelSelector != "" || q.FieldSelector != "" {
		return nil, fmt.Errorf("%s: %w", source.getting(name), errors.New("a get of one object has no selector"))
	}
	return source.object(ctx, name)
}
