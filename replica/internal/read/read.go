// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

// Reader has what all reads of a server share.
type Reader struct {
	Blocks *encode.Blocks
	Frames *encode.Frames
	Values *view.Values
	// Tracker has the responses that are being written.
	Tracker *respond.Tracker
	// Expired counts the watches that ended with 410.
	Expired *atomic.Uint64
	Logger  *slog.Logger
	// Guarded means that hooks decide which requests are answered.
	Guarded bool

	clock view.Clock
}

// Request is a read of a resource. The copy must have the resource in the requested version.
type Request struct {
	schema.GroupVersionResource
	Namespace, Name, Subresource string
	Query                        url.Values
	// Watch means that the request is a watch, and WatchPath that its path is that of the old form of a watch.
	Watch, WatchPath bool
	// Resource and Kind describe the objects, and View has them.
	Resource kube.Resource
	Kind     view.Kind
	View     view.View
	// Seal binds continue tokens to the caller.
	Seal view.Seal
	// Ambient means that the caller is known by credentials that a browser adds to a request by itself.
	Ambient bool
	// Ends are the contexts that a watch ends with.
	Ends []context.Context
	// Cluster is the name of the cluster of the view, "" if the view has several.
	Cluster string
	// Wait is called before the copy is asked for a version, and Select before the objects of a list
	// are read from the copy. Neither is nil. The caller calls end when that is done.
	Wait, Select func() (end func())
	// Started is called when a watch has sent the objects that it begins with; nil if nobody waits for that.
	Started func()
	// Delivery returns the function to call when a change has been written to the client of a watch,
	// nil if the change is not followed. Delivery is nil if no change is followed.
	Delivery func(cluster string, r schema.GroupResource, version uint64) (delivered func())
}

// Serve answers a request. If it returns an error, nothing has been written.
func (s *Reader) Serve(w http.ResponseWriter, r *http.Request, q *Request) error {
	return s.newCall(w, r, q).serve()
}

// call is a read of a resource while it is being answered.
type call struct {
	*Reader
	*Request
	w    http.ResponseWriter
	r    *http.Request
	view view.View
	// kind is the kind of the objects.
	kind schema.GroupVersionKind
	// builtin is the kind if it has a Go type: then its objects can be protobuf.
	builtin *wire.Kind
	media   respond.Media
}

func (s *Reader) newCall(w http.ResponseWriter, r *http.Request, q *Request) *call {
	return &call{
		Reader: s, Request: q, w: w, r: r, view: tracedView{q.View, q.Wait},
		kind: q.Resource.GroupVersionKind(), builtin: goKind(q.Resource),
	}
}

// target returns the part of the resource that the request is for.
func (c *call) target() view.Target {
	return view.Target{Namespace: c.Namespace, Name: c.Name, Namespaced: c.Resource.Namespaced}
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
	case c.Subresource == scaleName && !IsBuiltin(c.kind):
		return "*v1.Scale"
	case c.Subresource == scaleName:
		return "*autoscaling.Scale"
	case !IsBuiltin(c.kind):
		return "*unstructured.Unstructured" + suffix
	case name == "" || name == "events":
		name = "core"
	}
	return "*" + name + "." + c.kind.Kind + suffix
}

// begin begins a response in the encoding of the request.
func (c *call) begin() *respond.Body {
	return respond.NewBody(c.Tracker, c.w, c.r, c.media.Encoding.MediaType(), c.Logger)
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
