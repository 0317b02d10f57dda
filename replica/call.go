// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/past"
	"github.com/watershed-project/watershed/replica/internal/requestmetrics"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

// shared is the state that all requests to a server use.
type shared struct {
	blocks *encode.Blocks
	frames *encode.Frames
	values *view.Values
	// tracker has the responses that are being written.
	tracker respond.Tracker
	// past reads the past.
	past *past.Reader
	// written bounds the bytes that responses to passed-on writes hold.
	written *respond.Budget
	// requests counts the requests.
	requests requestmetrics.Requests
	clock    view.Clock
	seals    *view.SealKey
	logger   *slog.Logger
	// owned are the resources that the program answers itself.
	owned []OwnResource
	// authorize is [Options.Authorize], which may be nil.
	authorize func(*http.Request, *Request) (*Access, error)
	// guarded means that hooks decide which requests are answered.
	guarded bool
	// deliveries is [Options.Deliveries].
	deliveries Deliveries
}

// call is a read of a resource while it is being answered.
type call struct {
	*shared
	*Request
	w     http.ResponseWriter
	r     *http.Request
	view  view.View
	known view.Kind
	// kind is the kind of the objects.
	kind schema.GroupVersionKind
	// builtin is the kind if it has a Go type: then its objects can be protobuf.
	builtin    *wire.Kind
	namespaced bool
	media      respond.Media
	// seal binds continue tokens to the caller.
	seal view.Seal
}

func newCall(s *shared, w http.ResponseWriter, r *http.Request, q *Request, resource kube.Resource, known view.Kind, v view.View) *call {
	if q.trace != nil {
		v = tracedView{v, q}
	}
	return &call{
		shared: s, Request: q, w: w, r: r, view: v, known: known,
		kind: resource.GroupVersionKind(), builtin: goKind(resource), namespaced: resource.Namespaced,
	}
}

// builtin returns the kind of a resource if it has a Go type, and nil otherwise.
func goKind(r kube.Resource) *wire.Kind {
	kind, ok := kube.KindOf(r.GroupVersionResource)
	if !ok || kind.Kind != r.Kind {
		return nil
	}
	return kind
}

// isBuiltin reports whether kube-apiserver serves a kind itself, and not by a definition.
func isBuiltin(kind schema.GroupVersionKind) bool {
	return !encode.IsCustom(kind) || kube.IsBuiltin(kind.Group)
}

// target returns the part of the resource that the request is for.
func (c *call) target() view.Target {
	return view.Target{Namespace: c.Namespace, Name: c.Name, Namespaced: c.namespaced}
}

// key returns the key of the object that the request names.
func (c *call) key() string {
	if c.namespaced {
		return c.Namespace + "/" + c.Name
	}
	return c.Name
}

// form returns how the client wants objects of a cluster. They carry its name if the view
// has several.
func (c *call) form(cluster string) encode.Form {
	f := encode.Form{Encoding: c.media.Encoding, Partial: c.media.Shape == respond.Partial}
	if c.view.Spans() {
		f.Cluster = cluster
	}
	if f.Partial {
		f.Version = c.media.Version
	}
	if f.Encoding == encode.YAML {
		f.Encoding = encode.JSON
	}
	return f
}

// goType returns the name that kube-apiserver uses for the kind in messages to people.
func (c *call) goType(suffix string) string {
	name, _, _ := strings.Cut(c.kind.Group, ".")
	switch {
	case c.Subresource == scaleName && !isBuiltin(c.kind):
		return "*v1.Scale"
	case c.Subresource == scaleName:
		return "*autoscaling.Scale"
	case !isBuiltin(c.kind):
		return "*unstructured.Unstructured" + suffix
	case name == "" || name == "events":
		name = "core"
	}
	return "*" + name + "." + c.kind.Kind + suffix
}

// begin begins a response in the encoding of the request.
func (c *call) begin() *respond.Body {
	return respond.NewBody(&c.tracker, c.w, c.r, c.media.Encoding.MediaType(), c.logger)
}

// writeBody writes a response of given bytes.
func (c *call) writeBody(data []byte) error {
	b := c.begin()
	return b.Finish(func() error { return b.Add(encode.Raw(data)) })
}

// writeJSON writes a response in JSON, or in YAML that is made from it.
func (c *call) writeJSON(data []byte) error {
	if c.media.Encoding == encode.YAML {
		text, err := yaml.JSONToYAML(data)
		if err != nil {
			return err
		}
		return c.writeBody(text)
	}
	data = respond.Indent(data, c.media.Pretty)
	return c.writeBody(append(data[:len(data):len(data)], '\n'))
}

// writeEncoded writes an object of a kind that has been encoded in a form.
func (c *call) writeEncoded(f encode.Form, kind schema.GroupVersionKind, data []byte) error {
	if f.Encoding != encode.Protobuf {
		return c.writeJSON(data)
	}
	if f.Partial {
		kind = encode.PartialKind(f.Version, "")
	}
	apiVersion, name := kind.ToAPIVersionAndKind()
	return c.writeBody(encode.Envelope(nil, apiVersion, name, data))
}

// tracedView reports waits for a version to a trace.
type tracedView struct {
	view.View
	request *Request
}

// NotOlder implements [view.View].
func (v tracedView) NotOlder(ctx context.Context, version uint64) (*view.State, error) {
	defer v.request.phase(PhaseWait)()
	return v.View.NotOlder(ctx, version)
}

// Exact implements [view.View].
func (v tracedView) Exact(ctx context.Context, version uint64) (*view.State, error) {
	defer v.request.phase(PhaseWait)()
	return v.View.Exact(ctx, version)
}

// newDeliveries returns the deliveries of a watch, nil if there are none to follow.
func (c *call) newDeliveries() *deliveries {
	if c.deliveries == nil {
		return nil
	}
	d := &deliveries{Deliveries: c.deliveries, resource: c.GroupResource(), trace: c.trace}
	if c.Member != nil {
		d.cluster = c.Member.Name()
	}
	return d
}
