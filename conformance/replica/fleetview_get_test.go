// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testFleetGet: an object that one cluster has is returned, and one that two clusters
// have is not.
func testFleetGet(t *testing.T, p *pair) {
	p.fill(t, "got", 3)
	ctx := t.Context()
	get := func(name, query string) (*metav1.PartialObjectMetadata, error) {
		a := p.fleet.send(ctx, request{
			Method: http.MethodGet,
			URI:    "/api/v1/namespaces/got/configmaps/" + name + query,
			Accept: "application/json",
		})
		if a.err != nil || a.code != http.StatusOK {
			return nil, statusError(a)
		}
		var m metav1.PartialObjectMetadata
		return &m, json.Unmarshal(a.body, &m)
	}
	truth, err := p.truth(ctx, "got", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"east-01", "west-02"} {
		m, err := get(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if is := identity(m.Annotations[clusterAnnotation], &m.ObjectMeta); !slices.Contains(truth, is) ||
			!strings.HasPrefix(is, name[:4]+"/got/"+name) {
			t.Errorf("got %s, want one of %q", is, truth)
		}
	}
	if _, err := get("both-00", ""); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "east, west") {
		t.Errorf("what is in both: %v", err)
	}
	_, err = get("nowhere", "")
	_, want := p.clients[0].CoreV1().ConfigMaps("got").Get(ctx, "nowhere", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || err.Error() != want.Error() {
		t.Errorf("what is in neither: %v, want %v", err, want)
	}
	// Versions have the same meaning as in a list.
	list := p.settled(t, "got")
	if _, err := get("east-01", "?resourceVersion="+list.ResourceVersion); err != nil {
		t.Errorf("at the version of a list: %v", err)
	}
	if _, err := get("east-01",
		fmt.Sprint("?resourceVersion=", revision(t, list)+1000)); !apierrors.IsResourceExpired(err) {
		t.Errorf("at a version of the future: %v", err)
	}
	_, err = get("east-01", "?resourceVersion=x")
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Code != http.StatusInternalServerError ||
		!strings.Contains(err.Error(), "resourceVersion") {
		t.Errorf("at a version that is none: %v", err)
	}
}

// testFleetConsistent: a read of all clusters cannot be passed on. A client that requests
// that must not receive the copy instead.
func testFleetConsistent(t *testing.T, p *pair) {
	for _, path := range []string{
		"/api/v1/configmaps", "/api/v1/namespaces/kube-system/configmaps/absent",
		"/api/v1/configmaps?watch=1&timeoutSeconds=1",
	} {
		for _, how := range []struct {
			query  string
			header http.Header
		}{
			{"", http.Header{"Watershed-Read": {"consistent"}}},
			{"watershedRead=consistent", nil},
		} {
			uri := path + "?" + how.query
			if strings.Contains(path, "?") {
				uri = path + "&" + how.query
			}
			resp, err := p.fleet.do(t.Context(), request{
				Method: http.MethodGet, URI: uri, Accept: "application/json",
			}, how.header)
			if err != nil {
				t.Fatal(err)
			}
			var status metav1.Status
			err = json.NewDecoder(resp.Body).Decode(&status)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusBadRequest ||
				!strings.Contains(status.Message, "/clusters/") {
				t.Errorf("%s %v: %s %+v %v", uri, how.header, resp.Status, status, err)
			}
		}
	}
}
