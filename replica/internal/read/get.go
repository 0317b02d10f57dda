// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

// get answers with one object, in the shape that the client wants.
func (c *call) get() error {
	var opts metav1.GetOptions
	if err := scheme.ParameterCodec.DecodeParameters(c.Query, metav1.SchemeGroupVersion, &opts); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	version, err := view.ParseVersion(opts.ResourceVersion)
	if err != nil && view.StoredAs(c.GroupResource()) == (schema.GroupResource{Resource: "events"}) {
		// kube-apiserver reads events from etcd, and all others from its watch cache.
		err = apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	if err != nil {
		return err
	}
	state, err := c.view.NotOlder(c.r.Context(), version)
	if err != nil {
		return err
	}
	o, cluster, err := view.Get(c.view, state, c.GroupResource(), view.ObjectKey(c.Namespace, c.Name), c.Name)
	if err != nil {
		return err
	}
	switch {
	case c.media.Listed:
		return status.New(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
			fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (%s)",
				c.goType("")))
	case c.Subresource == scaleName:
		return c.writeScale(o, cluster)
	case c.media.Shape == respond.Table:
		return c.writeTableOf(o, cluster)
	}
	return c.writeObject(o, cluster)
}

// writeObject writes an object.
func (c *call) writeObject(o *wire.Object, cluster string) error {
	f := c.form(cluster)
	data, err := c.Frames.Get(encode.FrameKey{Object: o, Form: f})
	if err != nil {
		return err
	}
	return c.writeEncoded(f, c.kind, data)
}
