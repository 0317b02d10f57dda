// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

func TestCauseOf(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, tt := range []struct {
		err  error
		want fleet.Cause
	}{
		{nil, fleet.CauseNone},
		{fmt.Errorf("x: %w", fleet.ErrLimit), fleet.CauseLimit},
		{apierrors.NewUnauthorized("x"), fleet.CauseUnauthorized},
		{&reflector.Error{Err: fmt.Errorf("list: %w", apierrors.NewForbidden(pods, "", nil))}, fleet.CauseForbidden},
		{apierrors.NewTooManyRequests("x", 1), fleet.CauseBusy},
		{&reflector.Error{Reason: reflector.Busy}, fleet.CauseBusy},
		{apierrors.NewNotFound(pods, "x"), fleet.CauseNotServed},
		{&reflector.Error{Reason: reflector.NotServed}, fleet.CauseNotServed},
		{&kube.GroupError{Err: apierrors.NewServiceUnavailable("x")}, fleet.CauseDiscovery},
		{apierrors.NewInternalError(errors.New("x")), fleet.CauseServer},
		{&reflector.Error{Reason: reflector.Refused}, fleet.CauseUnreachable},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), fleet.CauseUnreachable},
		{io.ErrUnexpectedEOF, fleet.CauseUnreachable},
		{errors.New("x"), fleet.CauseOther},
	} {
		if got := fleet.CauseOf(tt.err); got != tt.want {
			t.Errorf("the cause of %v is %q, want %q", tt.err, got, tt.want)
		}
	}
}

// TestStats_causesOfRealErrors has clusters that cannot be reached, each in its own way.
func TestStats_causesOfRealErrors(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 4, Pods: 5})
	r := newRoster()
	refusing, distrusted, unresolved := s.Cluster(0).Config(), s.Cluster(1).Config(), s.Cluster(2).Config()
	refusing.BearerToken = "wrong"
	distrusted.CAData = nil
	unresolved.Host = "https://no-such-host.invalid"
	r.set("refusing", refusing)
	r.set("distrusted", distrusted)
	r.set("unresolved", unresolved)
	r.set("closed", &rest.Config{Host: "https://127.0.0.1:1"})
	r.set("good", s.Cluster(3).Config())
	f := start(t, r, &fleet.Options{Logger: quiet})
	want := map[string]fleet.Cause{
		"refusing": fleet.CauseUnauthorized, "distrusted": fleet.CauseCertificate, "unresolved": fleet.CauseUnreachable,
		"closed": fleet.CauseUnreachable, "good": fleet.CauseNone,
	}
	expect.Eventually(t, 20*time.Second, func() error {
		for _, m := range f.Stats().Members {
			if m.Cause != want[m.Name] || m.StaleSince.IsZero() != (m.Name == "good" && m.State == fleet.Live) {
				return fmt.Errorf("%s is %s because of %q since %s: want %q", m.Name, m.State, m.Cause, m.StaleSince, want[m.Name])
			}
		}
		return nil
	})
}
