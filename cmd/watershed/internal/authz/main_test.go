// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub is a cluster that answers reviews. It needs no network, so that tests can run with the
// clock of synctest.
type stub struct {
	mu sync.Mutex
	// answer returns the status of a review, or an HTTP response if the code is not 0.
	answer func(r *http.Request,
		spec authorizationv1.SubjectAccessReviewSpec) (status authorizationv1.SubjectAccessReviewStatus, code int,
		err error)
	specs []authorizationv1.SubjectAccessReviewSpec
	paths []string
	// running and most are the reviews at the same time, now and at most.
	running, most int
}

var (
	allow = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "RBAC: allowed by a test"}
	deny  = authorizationv1.SubjectAccessReviewStatus{Reason: "no"}
)

// answering returns a stub that always has the same answer.
func answering(status authorizationv1.SubjectAccessReviewStatus) *stub {
	s := &stub{}
	s.set(status)
	return s
}

func (s *stub) set(status authorizationv1.SubjectAccessReviewStatus) {
	s.handle(func(*http.Request, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus,
		int, error) {
		return status, 0, nil
	})
}

func (s *stub) handle(
	f func(*http.Request, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int,
		error),
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func (s *stub) RoundTrip(r *http.Request) (*http.Response, error) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.specs, s.paths = append(s.specs, review.Spec), append(s.paths, r.URL.Path)
	s.running++
	s.most = max(s.most, s.running)
	answer := s.answer
	s.mu.Unlock()
	status, code, err := answer(r, review.Spec)
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var body []byte
	if code == 0 {
		code = http.StatusCreated
		review.Status = status
		review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
		if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
			review.Kind = "SelfSubjectAccessReview"
		}
		body, err = json.Marshal(review)
	} else {
		body, err = json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   "Failure",
			Code:     int32(code),
			Reason:   reasons[code],
			Message:  "secret detail",
		})
	}
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(body)),
		Request:    r,
	}, err
}

var reasons = map[int]metav1.StatusReason{
	401: metav1.StatusReasonUnauthorized,
	403: metav1.StatusReasonForbidden,
	429: metav1.StatusReasonTooManyRequests,
	500: metav1.StatusReasonInternalError,
}

// calls returns how many reviews were sent.
func (s *stub) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.specs)
}

func (s *stub) cluster(tb testing.TB) *kube.Cluster {
	tb.Helper()
	c, err := kube.FromConfig(&rest.Config{Host: "http://stub", Transport: s}, &kube.Options{Name: "stub"})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// reviewer returns a reviewer that ends with the test.
func (s *stub) reviewer(tb testing.TB, opts *Options) *Reviewer {
	tb.Helper()
	r := NewReviewer(s.cluster(tb), opts)
	tb.Cleanup(r.Close)
	return r
}

var (
	alice  = &authenticationv1.UserInfo{Username: "alice", UID: "7", Groups: []string{"dev", "system:authenticated"}}
	getPod = replica.Attributes{
		Verb:       "get",
		IsResource: true,
		Version:    "v1",
		Resource:   "pods",
		Namespace:  "a",
		Name:       "x",
		Path:       "/api/v1/namespaces/a/pods/x",
	}
)

// mustDecide fails the test if the decision is another one.
func mustDecide(tb testing.TB, d Decision, err error, allowed bool) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	if d.Allowed != allowed {
		tb.Fatalf("allowed %v (%s), want %v", d.Allowed, d.Reason, allowed)
	}
}

// statusOf returns the status that an error becomes in a response.
func statusOf(tb testing.TB, err error) metav1.Status {
	tb.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		tb.Fatalf("%v has no status", err)
	}
	return status.Status()
}

func named(i int) *authenticationv1.UserInfo {
	return &authenticationv1.UserInfo{Username: fmt.Sprint("user-", i), Groups: []string{"dev"}}
}
