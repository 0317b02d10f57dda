// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// freshness is how long a read waits for a version that the copy has not reached, as
// long as the API server waits.
const freshness = 3 * time.Second

// request is a read of a resource of one cluster.
type request struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	target
	// cluster and feed are of one cluster; all is of all of them.
	cluster *cluster
	feed    *fleet.Feed
	all     *collection
	known   knowledge
	kind    schema.GroupVersionKind
	// builtin is the kind if it has a Go type: then its objects can be protobuf.
	builtin    *wire.Kind
	namespaced bool
	media      media
}

// serve answers the request. What it returns has not been answered.
func (q *request) serve() error {
	query := q.r.URL.Query()
	watch := q.watch || q.name == "" && isTrue(query, "watch")
	if routes(q.kind) {
		offers := routedTypes
		if q.name == "" {
			offers = routedListTypes
		}
		if err := routed(q.r.Header.Get("Accept"), offers...); err != nil {
			return err
		}
	}
	if err := q.check(query, watch); err != nil {
		return err
	}
	var err error
	can := ability{protobuf: q.builtin != nil, shapes: true, tableless: tableless(q.target), watch: watch}
	if q.media, err = negotiate(q.r, can); err != nil {
		return err
	}
	if q.media.encoding == asProtobuf && q.media.shape == 0 && q.isJSON() {
		// Nothing is lost in JSON. Converted to protobuf, objects lose the fields that
		// their Go types do not have.
		can.protobuf = false
		if m, err := negotiate(q.r, can); err == nil {
			q.media = m
		}
	}
	q.warn()
	if watch || q.name == "" {
		opts, err := listOptions(query, q.watch)
		if err != nil {
			return err
		}
		if q.all != nil {
			_, opts.LabelSelector = splitSelector(opts.LabelSelector)
		}
		switch {
		case watch && q.all != nil:
			return q.streamAll(opts)
		case watch:
			return q.stream(opts)
		case q.all != nil:
			return q.listAll(opts)
		}
		return q.list(opts)
	}
	if q.all != nil {
		return q.getAll(query)
	}
	return q.get(query)
}

// isJSON reports whether a cluster sends the resource as JSON, judged by one object of
// each.
func (q *request) isJSON() bool {
	first := func(objects iter.Seq2[string, *wire.Object]) bool {
		for _, o := range objects {
			return o.Encoding() == wire.JSON
		}
		return false
	}
	if q.all == nil {
		now, err := q.feed.Now()
		return err == nil && first(now.State.Range("", ""))
	}
	for _, state := range q.all.view.Snapshot().States() {
		if first(state.Range("", "")) {
			return true
		}
	}
	return false
}

// routes reports whether the API server has the kind of its own, not by definition.
func routes(kind schema.GroupVersionKind) bool {
	return !custom(kind) || kube.IsBuiltin(kind.Group)
}

// check is what the API server refuses whatever the resource is.
func (q *request) check(query url.Values, watch bool) error {
	if text := query.Get("timeout"); text != "" && !watch {
		if _, err := time.ParseDuration(text); err != nil {
			return apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
		}
	}
	if q.name == "" {
		return nil
	}
	if problems := content.IsPathSegmentName(q.name); len(problems) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", q.name, strings.Join(problems, ";")))
	}
	if isTrue(query, "export") && !watch {
		return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	return nil
}

// isTrue is how the API server reads a flag in a query.
func isTrue(query url.Values, name string) bool {
	values, ok := query[name]
	return ok && (len(values) == 0 || values[0] != "0" && !strings.EqualFold(values[0], "false"))
}

// listOptions are the parameters of a list or a watch.
func listOptions(query url.Values, watch bool) (*internalversion.ListOptions, error) {
	opts := &internalversion.ListOptions{}
	if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, opts); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	opts.Watch = opts.Watch || watch
	internalversion.SetListOptionsDefaults(opts, true)
	if errs := validation.ValidateListOptions(opts, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return opts, nil
}

// version is a resourceVersion as a number, 0 if there is none. What is none is an
// error of the server's, as it is there.
func version(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, failure(http.StatusInternalServerError, "", field.Invalid(field.NewPath("resourceVersion"), text, err.Error()).Error())
	}
	return v, nil
}

// listVersion is version for a list, whose client is told that it is wrong.
func listVersion(text string) (uint64, error) {
	v, err := version(text)
	if err != nil {
		err = apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	return v, err
}

// getVersion is the version that a get asks for.
func getVersion(query url.Values) (uint64, error) {
	var opts metav1.GetOptions
	if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &opts); err != nil {
		return 0, apierrors.NewBadRequest(err.Error())
	}
	return version(opts.ResourceVersion)
}

// at is a state that is not older than a version.
func (q *request) at(v uint64) (*fleet.Moment, error) {
	ctx, cancel := context.WithTimeout(q.r.Context(), freshness)
	defer cancel()
	now, err := q.feed.Wait(ctx, v)
	switch {
	case errors.Is(err, fleet.ErrFuture):
		return nil, tooLarge(v, now.Version)
	case err != nil:
		return nil, notReady()
	}
	return now, nil
}

// key is that of the object that is named.
func (q *request) key() string {
	if q.namespaced {
		return q.namespace + "/" + q.name
	}
	return q.name
}

// get answers with one object.
func (q *request) get(query url.Values) error {
	v, err := getVersion(query)
	if err != nil {
		return err
	}
	now, err := q.at(v)
	if err != nil {
		return err
	}
	o, ok := now.State.Get(q.key())
	if !ok {
		return apierrors.NewNotFound(q.GroupResource(), q.name)
	}
	return q.writeOne(o, "")
}

// writeOne answers with one object in the shape that the client wants.
func (q *request) writeOne(o *wire.Object, cluster string) error {
	switch {
	case q.media.listed:
		return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
			fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (%s)", q.goType("")))
	case q.subresource == scaleName:
		return q.writeScale(o, cluster)
	case q.media.shape == table:
		return q.tableOf(o, cluster)
	}
	f := q.form(cluster)
	data, err := q.server.frames.get(frameKey{object: o, form: f})
	if err != nil {
		return err
	}
	return q.writeObject(f, q.kind, data)
}

// goType is what the API server calls the kind in messages to people.
func (q *request) goType(suffix string) string {
	name, _, _ := strings.Cut(q.kind.Group, ".")
	switch {
	case q.subresource == scaleName && !routes(q.kind):
		return "*v1.Scale"
	case q.subresource == scaleName:
		return "*autoscaling.Scale"
	case !routes(q.kind):
		return "*unstructured.Unstructured" + suffix
	case name == "" || name == "events":
		name = "core"
	}
	return "*" + name + "." + q.kind.Kind + suffix
}

// form is how the client wants objects.
func (q *request) form(cluster string) form {
	f := form{encoding: q.media.encoding, partial: q.media.shape == partial, cluster: cluster}
	if f.partial {
		f.version = q.media.version
	}
	if f.encoding == asYAML {
		f.encoding = asJSON
	}
	return f
}

// writeObject answers with an object of a kind that has been written in a form.
func (q *request) writeObject(f form, kind schema.GroupVersionKind, data []byte) error {
	if f.encoding != asProtobuf {
		return q.writeJSON(data)
	}
	if f.partial {
		kind = partialKind(f.version, "")
	}
	apiVersion, name := kind.ToAPIVersionAndKind()
	return q.writeBody(envelope(nil, apiVersion, name, data))
}

// builtin is the kind of a resource with a Go type, nil for any other.
func builtin(r kube.Resource) *wire.Kind {
	kind, ok := kube.KindOf(r.GroupVersionResource)
	if !ok || kind.Kind != r.Kind {
		return nil
	}
	return kind
}

// partialKind is what metadata is, or a list of it.
func partialKind(version, suffix string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: version, Kind: "PartialObjectMetadata" + suffix}
}
