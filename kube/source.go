// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// These are the kinds of objects that contain only metadata.
const (
	partialObject     = "PartialObjectMetadata"
	partialObjectList = "PartialObjectMetadataList"
)

// Source provides a query's objects to a reflector.
type Source struct {
	cluster *Cluster
	query   Query
	builtin bool
	// kind is the kind to assign to the objects. It is nil if the objects contain it
	// themselves or if it has not been discovered yet.
	kind atomic.Pointer[wire.Kind]
}

var (
	_ reflector.Source[*wire.Object] = (*Source)(nil)
	_ reflector.Getter               = (*Source)(nil)
)

// Source returns a source for the query's objects. It does not check with the server
// whether the resource exists.
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
func (s *Source) List(
	ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error,
) (page reflector.Page, err error) {
	r, kind, err := s.prepare(ctx, "list", partialObjectList, listwatch.ListOptions(opts))
	if err != nil {
		return page, err
	}
	resp, encoding, err := s.send(ctx, r)
	if err != nil {
		return page, err
	}
	defer resp.close()
	return listwatch.ReadList(r.Request, body{resp}, encoding, kind, each)
}

// Count returns the number of objects. The server reads one object for it and sends only
// its metadata. If the server does not send the number of remaining objects, as with a
// selector, Count takes it as 0.
func (s *Source) Count(ctx context.Context) (int, error) {
	r, kind, err := s.metadata().prepare(ctx, "count", partialObjectList, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	resp, encoding, err := s.send(ctx, r)
	if err != nil {
		return 0, err
	}
	defer resp.close()
	reader := stream.NewListReader(resp.Body, encoding, kind)
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

// metadata returns a source of the metadata of the same objects. Their kind is not used, so it
// need not be discovered.
func (s *Source) metadata() *Source {
	m := &Source{cluster: s.cluster, query: s.query, builtin: s.builtin}
	m.query.MetadataOnly = true
	m.kind.Store(&wire.Kind{GroupVersionKind: s.query.Resource.GroupVersion().WithKind(partialObject)})
	return m
}

// Get requests the metadata of one object, and returns its UID and version. See
// [reflector.Getter].
func (s *Source) Get(ctx context.Context, key string) (uid, version string, err error) {
	namespace, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		namespace, name = "", key
	}
	m := s.metadata()
	m.query.Namespace = namespace
	o, err := m.object(ctx, name)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err), apierrors.IsNotAcceptable(err):
		return "", "", &reflector.Error{Reason: reflector.NotSupported, Err: err}
	case isAbsent(err, name):
		return "", "", nil
	case err != nil:
		return "", "", err
	}
	decoded, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	if err != nil {
		return "", "", err
	}
	return string(decoded.UID), decoded.ResourceVersion, nil
}

// getting returns the prefix of errors about one object.
func (s *Source) getting(name string) string {
	return fmt.Sprintf("get %s of %s", name, s.doing("")[1:])
}

// object returns one object of the source's namespace, whatever the selectors are.
func (s *Source) object(ctx context.Context, name string) (*wire.Object, error) {
	doing := s.getting(name)
	if err := validateSegment("name", name); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	kind, err := s.kindFor(ctx, doing)
	if err != nil {
		return nil, err
	}
	return s.cluster.object(ctx, &request{
		path:   append(resourcePath(s.query.Resource, s.query.Namespace), url.PathEscape(name)),
		accept: s.accept(partialObject),

		resource: s.query.Resource.GroupResource(),
		name:     name,
		Request:  listwatch.Request{Doing: doing},
	}, kind)
}

// isAbsent reports whether a server has answered that it does not have an object. Any other 404
// is about the resource, or comes from a proxy.
func isAbsent(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name
}

// Watch starts a watch and returns when the response headers have arrived. See
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
	r.InitialEvents, r.apart = opts.InitialEvents, opts.NewConnection
	resp, encoding, err := s.send(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.slim()
	return listwatch.NewWatch(r.Request, body{resp}, encoding, kind), nil
}

// Served asks the server whether it serves the resource. See [reflector.Source].
func (s *Source) Served(ctx context.Context) (bool, error) {
	resource, err := s.describe(ctx)
	return resource != nil, err
}

// describe returns the server's description of the resource, nil if it is not served.
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

// prepare makes the request for a list or a watch. It also returns the kind of the
// objects in the response, nil if they contain it themselves.
func (s *Source) prepare(
	ctx context.Context, verb, partial string, options metav1.ListOptions,
) (*request, *wire.Kind, error) {
	doing := s.doing(verb)
	kind, err := s.kindFor(ctx, doing)
	if err != nil {
		return nil, nil, err
	}
	options.LabelSelector = s.query.LabelSelector
	options.FieldSelector = joined(s.query.FieldSelector, options.FieldSelector)
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
		path:   resourcePath(s.query.Resource, s.query.Namespace),
		query:  query,
		accept: s.accept(partial),
		stream: true,

		resource: s.query.Resource.GroupResource(),
		Request:  listwatch.Request{Doing: doing, Collection: true},
	}, kind, nil
}

// joined returns the selector of what both selectors select.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "," + b
}

// send is Cluster.send, and returns the encoding of the response. It forgets the kind of a
// resource that is not served: it may come back as another kind.
func (s *Source) send(ctx context.Context, r *request) (resp *response, e wire.Encoding, err error) {
	if resp, err = s.cluster.send(ctx, r); err == nil {
		if e, err = resp.encoding(); err != nil {
			resp.close()
		}
	}
	if isReason(err, reflector.NotServed) && !s.builtin {
		s.kind.Store(nil)
	}
	return resp, e, err
}

// kindFor returns the kind to assign to the objects. Metadata arrives as objects of
// another kind, so the resource's own kind has to be known. It uses the same discovery
// document as Served, so the two never disagree for longer than a request takes.
func (s *Source) kindFor(ctx context.Context, doing string) (*wire.Kind, error) {
	kind := s.kind.Load()
	if kind != nil || !s.query.MetadataOnly {
		return kind, nil
	}
	kind, err := s.Kind(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	s.kind.Store(kind)
	return kind, nil
}

// accept returns the Accept header; partial is the kind for metadata.
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

// doing returns the prefix of errors.
func (s *Source) doing(verb string) string {
	return fmt.Sprintf("%s %s in %s", verb, s.query, s.cluster.name)
}
