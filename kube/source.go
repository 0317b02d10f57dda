// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// What servers call objects without anything but their metadata.
const (
	partialObject     = "PartialObjectMetadata"
	partialObjectList = "PartialObjectMetadataList"
)

// Source is a query's objects, for a reflector.
type Source struct {
	cluster *Cluster
	query   Query
	builtin bool
	// kind is what the objects are to be, nil if they say it themselves or if
	// nobody has asked yet.
	kind atomic.Pointer[wire.Kind]
}

var _ reflector.Source[*wire.Object] = (*Source)(nil)

// Source is where the query's objects come from. It does not ask the server
// whether there are any.
func (c *Cluster) Source(q Query) (*Source, error) {
	if err := q.validate(); err != nil {
		return nil, fmt.Errorf("source %s in %s: %w", q, c.name, err)
	}
	s := &Source{cluster: c, query: q}
	if kind, ok := KindOf(q.Resource); ok {
		s.builtin = true
		s.kind.Store(kind)
	}
	return s, nil
}

// List reads one page. See [reflector.Source].
func (s *Source) List(ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error) (page reflector.Page, err error) {
	r, kind, err := s.prepare(ctx, "list", partialObjectList, listwatch.ListOptions(opts))
	if err != nil {
		return page, err
	}
	resp, err := s.send(ctx, r)
	if err != nil {
		return page, err
	}
	defer resp.close()
	encoding, err := resp.encoding()
	if err != nil {
		return page, err
	}
	return listwatch.ReadList(r.Request, body{resp}, encoding, kind, each)
}

// Count asks how many objects there are. It costs the server one object, of which
// only the metadata comes. A server that does not say, as with a selector, has 0
// beyond that one.
func (s *Source) Count(ctx context.Context) (int, error) {
	one := &Source{cluster: s.cluster, query: s.query, builtin: s.builtin}
	one.query.MetadataOnly = true
	// Nobody looks at what it is: that need not be asked for.
	one.kind.Store(&wire.Kind{GroupVersionKind: s.query.Resource.GroupVersion().WithKind(partialObject)})
	r, kind, err := one.prepare(ctx, "count", partialObjectList, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	resp, err := s.send(ctx, r)
	if err != nil {
		return 0, err
	}
	defer resp.close()
	encoding, err := resp.encoding()
	if err != nil {
		return 0, err
	}
	reader := wire.NewListReader(resp.Body, encoding, kind)
	for n := 0; ; n++ {
		_, err := reader.Next()
		var unfiled *wire.ObjectError
		switch {
		case err == io.EOF: //nolint:errorlint // a wrapped EOF is a body that broke off
			resp.drain()
			return n + int(reader.Meta().RemainingItemCount), nil
		case err != nil && !errors.As(err, &unfiled):
			return 0, resp.failed(err)
		}
	}
}

// Watch begins a watch and returns when the server has begun to answer. See
// [reflector.Source].
func (s *Source) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	w, err := s.watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s *Source) watch(ctx context.Context, opts reflector.WatchOptions) (*listwatch.Watch, error) {
	r, kind, err := s.prepare(ctx, "watch", partialObject, listwatch.WatchOptions(opts))
	if err != nil {
		return nil, err
	}
	r.InitialEvents = opts.InitialEvents
	resp, err := s.send(ctx, r)
	if err != nil {
		return nil, err
	}
	encoding, err := resp.encoding()
	if err != nil {
		resp.close()
		return nil, err
	}
	return listwatch.NewWatch(r.Request, body{resp}, encoding, kind), nil
}

// Served asks the server whether it has the resource. See [reflector.Source].
func (s *Source) Served(ctx context.Context) (bool, error) {
	resource, err := s.describe(ctx)
	return resource != nil, err
}

// describe is what the server says about the resource, nil if it does not serve
// it.
func (s *Source) describe(ctx context.Context) (*metav1.APIResource, error) {
	list, err := s.cluster.discoverVersion(ctx, s.query.Resource.GroupVersion())
	if isReason(err, reflector.NotServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range list.APIResources {
		if r := &list.APIResources[i]; r.Name == s.query.Resource.Resource {
			return r, nil
		}
	}
	return nil, nil
}

// prepare makes the request for a list or a watch, and tells the kind of the
// objects that are to come, nil if they say it themselves.
func (s *Source) prepare(ctx context.Context, verb, partial string, options metav1.ListOptions) (*request, *wire.Kind, error) {
	doing := s.doing(verb)
	kind, err := s.kindFor(ctx, doing)
	if err != nil {
		return nil, nil, err
	}
	options.LabelSelector = s.query.LabelSelector
	options.FieldSelector = s.query.FieldSelector
	if s.query.Tweak != nil {
		watch := options.Watch
		s.query.Tweak(&options)
		options.Watch = watch
	}
	query, err := metav1.ParameterCodec.EncodeParameters(&options, schema.GroupVersion{Version: "v1"})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", doing, err)
	}
	return &request{
		method: http.MethodGet,
		path:   resourcePath(s.query.Resource, s.query.Namespace),
		query:  query,
		accept: s.accept(partial),
		stream: true,

		resource: s.query.Resource.GroupResource(),
		Request:  listwatch.Request{Doing: doing, Collection: true},
	}, kind, nil
}

// send is the cluster's, but a resource that is gone may come back as another kind.
func (s *Source) send(ctx context.Context, r *request) (*response, error) {
	resp, err := s.cluster.send(ctx, r)
	if isReason(err, reflector.NotServed) && !s.builtin {
		s.kind.Store(nil)
	}
	return resp, err
}

// kindFor is the kind to give to the objects. Metadata comes as objects of another
// kind, so their own has to be known. It asks where Served asks, so that the two
// never disagree for longer than it takes.
func (s *Source) kindFor(ctx context.Context, doing string) (*wire.Kind, error) {
	kind := s.kind.Load()
	if kind != nil || !s.query.MetadataOnly {
		return kind, nil
	}
	resource, err := s.describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if resource == nil {
		return nil, &reflector.Error{Reason: reflector.NotServed, Err: fmt.Errorf("%s: %w", doing, &meta.NoResourceMatchError{PartialResource: s.query.Resource})}
	}
	kind = &wire.Kind{GroupVersionKind: s.query.Resource.GroupVersion().WithKind(resource.Kind)}
	s.kind.Store(kind)
	return kind, nil
}

// accept is the Accept header; partial is what metadata is called.
func (s *Source) accept(partial string) string {
	protobuf := s.builtin && !s.query.JSON
	accept := runtime.ContentTypeJSON
	if s.query.MetadataOnly {
		as := ";as=" + partial + ";g=" + metav1.GroupName + ";v=v1"
		accept = runtime.ContentTypeJSON + as + "," + accept
		if protobuf {
			accept = runtime.ContentTypeProtobuf + as + "," + accept
		}
		return accept
	}
	if protobuf {
		accept = runtime.ContentTypeProtobuf + "," + accept
	}
	return accept
}

// doing is what errors begin with.
func (s *Source) doing(verb string) string {
	return fmt.Sprintf("%s %s in %s", verb, s.query, s.cluster.name)
}
