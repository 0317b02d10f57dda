// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// startingFor is how long UID tries again while a server forbids everything. One that
	// starts does so for some milliseconds, until it has read the rights.
	startingFor = 5 * time.Second
	// startingPoll is the time between two tries.
	startingPoll = 250 * time.Millisecond
)

// UID returns the UID of the cluster's namespace kube-system, which identifies the cluster.
// It is "" if the cluster does not allow reading it. A server that is starting forbids that,
// too: the error has the reason [reflector.Busy] if the server says that it is not ready, and
// if it forbids even that question, UID tries again for some seconds.
func (c *Cluster) UID(ctx context.Context) (string, error) {
	for end := time.Now().Add(startingFor); ; {
		uid, err := c.namespaceUID(ctx)
		if !apierrors.IsForbidden(err) {
			return uid, err
		}
		started, err := c.started(ctx)
		switch {
		case err != nil:
			return "", err
		case started || c.readinessForbidden.Load():
			return "", nil
		case time.Now().After(end):
			c.readinessForbidden.Store(true)
			return "", nil
		}
		if err := timer.Sleep(ctx, startingPoll); err != nil {
			return "", fmt.Errorf("identity of the cluster: %w", err)
		}
	}
}

// namespaceUID returns the UID of the namespace kube-system, "" if there is none.
func (c *Cluster) namespaceUID(ctx context.Context) (string, error) {
	o, err := c.Get(ctx, Query{
		Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), MetadataOnly: true,
	}, "kube-system")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("identity of the cluster: %w", err)
	}
	m, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	if err != nil {
		return "", fmt.Errorf("identity of the cluster: %w", err)
	}
	return string(m.UID), nil
}

// started reports whether the server has started. The result is false if it forbids the
// question, and the error has the reason Busy if it has not.
func (c *Cluster) started(ctx context.Context) (bool, error) {
	doing := "readiness of " + c.name
	resp, err := c.send(ctx, &request{
		path:    []string{"readyz"},
		accept:  "*/*",
		Request: listwatch.Request{Doing: doing},
	})
	if err == nil {
		resp.drain()
		resp.close()
		return true, nil
	}
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status):
		return false, err
	case status.Status().Code >= http.StatusInternalServerError:
		return false, &reflector.Error{
			Reason: reflector.Busy, Err: fmt.Errorf("%s: the server is still starting", doing),
		}
	}
	return !apierrors.IsForbidden(err), nil
}

// Kind returns the kind of the source's objects. It requests the kind of a custom resource
// from the server. The error has the reason [reflector.NotServed] if the server does not
// serve the resource.
func (s *Source) Kind(ctx context.Context) (*wire.Kind, error) {
	if kind := s.kind.Load(); kind != nil {
		return kind, nil
	}
	resource, err := s.describe(ctx)
	if err != nil {
		return nil, err
	}
	if resource == nil {
		return nil, &reflector.Error{
			Reason: reflector.NotServed,
			Err:    &meta.NoResourceMatchError{PartialResource: s.query.Resource},
		}
	}
	return &wire.Kind{GroupVersionKind: s.query.Resource.GroupVersion().WithKind(resource.Kind)}, nil
}
