// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// serve checks the request, negotiates, and answers it by its verb. If it returns an
// error, nothing has been written.
func (c *call) serve() error {
	watch := c.Watch
	if IsBuiltin(c.kind) {
		offers := respond.ObjectTypes
		if c.Name == "" {
			offers = respond.ListTypes
		}
		if err := respond.CheckRoute(c.r.Header.Get("Accept"), offers...); err != nil {
			return err
		}
	}
	if err := c.check(watch); err != nil {
		return err
	}
	if err := c.negotiate(watch); err != nil {
		return err
	}
	if text := c.deprecation(); text != "" {
		warning.Add(c.w.Header(), text)
	}
	if !watch && c.Name != "" {
		return c.get()
	}
	opts, err := c.listOptions()
	if err != nil {
		return err
	}
	if watch && c.view.Spans() {
		if err := c.checkKeyed(); err != nil {
			return err
		}
	}
	m, err := view.NewMatcher(c.Values, opts, c.target(), c.Kind.Fields)
	if err != nil {
		return err
	}
	if watch {
		return c.watch(opts, m)
	}
	return c.list(opts, m)
}

// check returns the errors of kube-apiserver that do not depend on the resource.
func (c *call) check(watch bool) error {
	if text := c.Query.Get("timeout"); text != "" && !watch {
		if _, err := time.ParseDuration(text); err != nil {
			return apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
		}
	}
	if c.Name == "" {
		return nil
	}
	if problems := content.IsPathSegmentName(c.Name); len(problems) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s",
			c.Name, strings.Join(problems, ";")))
	}
	if respond.IsTrue(c.Query, "export") && !watch {
		return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	return nil
}

// negotiate sets the media type. Objects that a cluster sends as JSON lose the fields that
// their Go types do not have when they are converted to protobuf: a client that accepts
// both receives JSON.
func (c *call) negotiate(watch bool) (err error) {
	can := respond.Ability{Protobuf: c.builtin != nil, Shapes: true, NoTables: c.hasNoTable(), Watch: watch}
	if c.media, err = respond.Negotiate(c.r, can); err != nil {
		return err
	}
	if c.media.Encoding == encode.Protobuf && c.media.Shape == respond.Whole && view.IsJSON(c.view) {
		can.Protobuf = false
		if m, err := respond.Negotiate(c.r, can); err == nil {
			c.media = m
		}
	}
	return nil
}

// hasNoTable reports whether kube-apiserver makes no tables of the subresource. It makes
// tables of most, and has no printer for these.
func (c *call) hasNoTable() bool {
	switch c.Subresource {
	case "", scaleName:
		return false
	case "status":
		forgotten := []string{"apiextensions.k8s.io", "apiregistration.k8s.io", "resource.k8s.io", "scheduling.k8s.io"}
		return slices.Contains(forgotten, c.Group)
	}
	return true
}

// listOptions returns the parameters of a list or a watch. In a view of several clusters
// the requirements on clusters are taken out of the label selector: the view has them.
func (c *call) listOptions() (*internalversion.ListOptions, error) {
	opts, err := parseListOptions(c.Query, c.WatchPath)
	if err == nil && c.view.Spans() {
		_, opts.LabelSelector = view.SplitSelector(opts.LabelSelector)
	}
	return opts, err
}

func parseListOptions(query url.Values, watch bool) (*internalversion.ListOptions, error) {
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

// deprecation returns the warning about a kind that is deprecated, "" for any other.
func (c *call) deprecation() string {
	if c.builtin == nil {
		return c.Kind.Deprecated
	}
	value := c.builtin.New()
	since, ok := value.(interface{ APILifecycleDeprecated() (major, minor int) })
	if !ok {
		return ""
	}
	major, minor := since.APILifecycleDeprecated()
	text := fmt.Sprintf("%s %s is deprecated in v%d.%d+", c.kind.GroupVersion(), c.kind.Kind, major, minor)
	if until, ok := value.(interface{ APILifecycleRemoved() (major, minor int) }); ok {
		major, minor := until.APILifecycleRemoved()
		text += fmt.Sprintf(", unavailable in v%d.%d+", major, minor)
	}
	if other, ok := value.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		use := other.APILifecycleReplacement()
		text += fmt.Sprintf("; use %s %s", use.GroupVersion(), use.Kind)
	}
	return text
}
