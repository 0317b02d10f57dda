// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

// userToken is the token of the user of these tests.
const userToken = "Bearer mine"

// partialMetadata requests the metadata of an object.
const partialMetadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

// classified is a request, and which side answers it.
type classified struct {
	method, path string // GET if it is ""; {ns} and {pod} are replaced
	header       []string
	passed       bool
}

// copied are requests that the copy answers, also with errors.
var copied = []classified{
	{path: "/api/v1/pods"},
	{path: "/api/v1/pods/"},
	{path: "/api/v1/namespaces/{ns}/pods"},
	{path: "/api/v1/namespaces/absent/pods"},
	{path: "/api/v1/namespaces/{ns}/pods/{pod}"},
	{path: "/api/v1/namespaces/{ns}/pods/absent?resourceVersion=0"},
	{path: "/api/v1/namespaces/{ns}/pods/{pod}?resourceVersion=0"},
	{path: "/api/v1/pods?limit=3"},
	{path: "/api/v1/pods?limit=x"},
	{path: "/api/v1/pods?continue=x"},
	{path: "/api/v1/pods?resourceVersion=0&limit=3"},
	{path: "/api/v1/pods?resourceVersion=x"},
	{path: "/api/v1/pods?labelSelector=!!"},
	{path: "/api/v1/pods?fieldSelector=spec.nodeName%3Da"},
	{path: "/api/v1/pods?watch=true&timeoutSeconds=1"},
	{path: "/api/v1/pods?watch=true&timeoutSeconds=1&resourceVersion=1"},
	{path: "/api/v1/watch/pods?timeoutSeconds=1"},
	{path: "/api/v1/watch/namespaces/{ns}/pods/{pod}?timeoutSeconds=1"},
	{path: "/api/v1/pods", header: []string{"Accept", "application/yaml"}},
	{path: "/api/v1/pods", header: []string{"Accept", "application/vnd.kubernetes.protobuf"}},
	{path: "/api/v1/pods", header: []string{"Accept", "text/html,*/*"}},
	{path: "/api/v1/pods", header: []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}},
	{
		path:   "/api/v1/pods",
		header: []string{"Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
	},
	{path: "/api/v1/namespaces/{ns}/pods/{pod}?resourceVersion=0", header: []string{"Accept", partialMetadata}},
	{path: "/api/v1/pods", header: []string{"Accept-Encoding", "gzip"}},
	{path: "/api/v1/pods", header: []string{"Watershed-Read", "copy"}},
	{path: "/api/v1/./pods"},
	{path: "/api/v1/namespaces/{ns}/pods/{pod}/proxy/../../a"},
	{path: "/healthz"},
	{path: "/livez?verbose"},
	{path: "/readyz"},
	{method: http.MethodHead, path: "/readyz"},
}

// passedOn are requests that the cluster answers.
var passedOn = []classified{
	{path: "/api/v1/namespaces/{ns}/pods/absent"},
	{path: "/api/v1/namespaces/{ns}/pods/{pod}", header: []string{"Accept", partialMetadata}},
	{
		path: "/api/v1/namespaces/{ns}/pods/{pod}",
		header: []string{
			"Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
				partialMetadata + ",application/json",
		},
	},
	{method: http.MethodHead, path: "/api/v1/pods"},
	{method: http.MethodOptions, path: "/api/v1/pods"},
	{method: http.MethodPost, path: "/api/v1/namespaces/{ns}/pods"},
	{method: http.MethodPost, path: "/api/v1/namespaces/{ns}/pods?dryRun=All"},
	{method: http.MethodPut, path: "/api/v1/namespaces/{ns}/pods/{pod}"},
	{method: http.MethodPatch, path: "/api/v1/namespaces/{ns}/pods/{pod}"},
	{method: http.MethodDelete, path: "/api/v1/namespaces/{ns}/pods/{pod}"},
	{method: http.MethodDelete, path: "/api/v1/namespaces/{ns}/pods"},
	{method: "PROPFIND", path: "/api/v1/namespaces/{ns}/pods"},
	{method: http.MethodPost, path: "/api/v1/namespaces/{ns}/pods/{pod}/eviction"},
	{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/subjectaccessreviews"},
	{path: "/api/v1/namespaces/{ns}/pods/{pod}/log?follow=true"},
	{path: "/api/v1/namespaces/{ns}/pods/{pod}/exec?command=ls"},
	{path: "/api/v1/namespaces/{ns}/pods/{pod}/proxy/a/b"},
	{path: "/api/v1/namespaces/{ns}/pods/{pod}/nothing"},
	{path: "/api/v1/pods/{pod}"},
	{path: "/api/v1/secrets"},
	{path: "/api/v1/secrets?watch=true&timeoutSeconds=1"},
	{path: "/api/v1/watch/secrets?timeoutSeconds=1"},
	{path: "/api/v1/nothings"},
	{path: "/api/v2/pods"},
	{path: "/api/v1/Pods"},
	{path: "/apis/metrics.k8s.io/v1beta1/namespaces/{ns}/pods"},
	{path: "/"},
	{path: "/api"},
	{path: "/apis"},
	{path: "/api/v1"},
	{path: "/apis/apps/v1"},
	{path: "/version"},
	{path: "/openapi/v2"},
	{path: "/openapi/v3"},
	{path: "/metrics"},
	{path: "/nothing"},
	{path: "/healthz/ping"},
	{path: "/livez/"},
	{method: http.MethodPost, path: "/api"},
	{path: "/api/v1/pods", header: []string{"Watershed-Read", "consistent"}},
	{path: "/api/v1/pods?watershedRead=consistent"},
	{path: "/api/v1/pods?watch=true&timeoutSeconds=1&watershedRead=consistent"},
	{path: "/api/v1/pods", header: []string{"Accept", "application/cbor"}},
	{path: "/api/v1/pods", header: []string{"Accept", "text/html"}},
	{path: "/api/v1/pods", header: []string{"Accept", partialMetadata}},
	{
		path:   "/api/v1/namespaces/{ns}/pods/{pod}",
		header: []string{"Accept", "application/json;as=Table;v=v2;g=meta.k8s.io"},
	},
	{path: "/api/v1/pods?watch=true&timeoutSeconds=1", header: []string{"Accept", "application/yaml"}},
	{path: "/api/v1/pods?resourceVersion=1&resourceVersionMatch=Exact"},
	{path: "/api/v1/pods?resourceVersion=1&limit=3"},
}

// newClassified returns a replica with access control, a function that counts the requests of
// the user at the cluster, and one that sends a request to the replica. NoPassThrough is why
// requests are not passed on.
func newClassified(t *testing.T, withheld string) (count func() int32, send func(classified) (*http.Response, string)) {
	t.Helper()
	var admitted atomic.Int32
	w, origins := newOriginsWith(t, 1, nil, &replica.Options{
		OriginTimeout: originTimeout, PassThrough: true,
		Admit: func(r *http.Request, q *replica.Request) (func(), error) {
			if q.Passed || r.Header.Get("Authorization") != userToken {
				return func() {}, nil
			}
			admitted.Add(1)
			return func() { admitted.Add(-1) }, nil
		},
		Authorize: func(r *http.Request, _ *replica.Request) (*replica.Access, error) {
			user := r.Header.Get("Authorization")
			return &replica.Access{User: user, Caller: user, NoPassThrough: withheld}, nil
		},
	})
	w.untilCopied(0)
	var seen atomic.Int32
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != userToken {
			return false
		}
		seen.Add(1)
		if n := admitted.Load(); n != 0 {
			t.Errorf("%s counts as work of the replica while the cluster answers: %d", r.URL, n)
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"kind":"Status","message":"of the cluster"}`)
		return true
	})
	pod := w.clusters.Cluster(0).Pod(0)
	names := strings.NewReplacer("{ns}", pod.Namespace, "{pod}", pod.Name)
	return seen.Load, func(c classified) (*http.Response, string) {
		if c.method == "" {
			c.method = http.MethodGet
		}
		return w.send(c.method, w.root(0)+names.Replace(c.path), "",
			append([]string{"Authorization", userToken}, c.header...)...)
	}
}

// TestClassification checks which requests the copy answers, and which the cluster does.
func TestClassification(t *testing.T) {
	count, send := newClassified(t, "")
	all := append([]classified{}, copied...)
	for _, c := range passedOn {
		c.passed = true
		all = append(all, c)
	}
	for _, c := range all {
		before := count()
		resp, text := send(c)
		passed := count() > before
		if source := resp.Header.Get("Watershed-Source") == "passed-on"; passed != c.passed || source != passed ||
			count() > before+1 {
			t.Errorf("%s %s %v: the cluster has received %d requests, the response is the cluster's: %t; want passed "+
				"on %t: %d %.200s", c.method, c.path, c.header, count()-before, source, c.passed, resp.StatusCode, text)
		}
		if age := resp.Header.Get("Watershed-Age") != ""; passed && age {
			t.Errorf("%s %s %v: a response of the cluster has the age of the copy", c.method, c.path, c.header)
		}
	}
}

// TestClassification_unread checks that reads are passed on until the copy has been read.
func TestClassification_unread(t *testing.T) {
	held := make(chan struct{})
	w, _ := newOriginsWith(t, 1, func(origins []*origin) {
		origins[0].answers(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/api/v1/pods" && r.Header.Get("Authorization") != userToken {
				select {
				case <-held:
				case <-r.Context().Done():
				}
			}
			return false
		})
	}, &replica.Options{OriginTimeout: originTimeout, PassThrough: true})
	w.until(http.StatusOK, w.root(0)+"/version")
	for range 20 {
		if code, header, status := w.ask(w.pods(0), "Authorization", userToken); code != http.StatusOK ||
			header.Get("Watershed-Source") != "passed-on" {
			t.Fatalf("before the copy has been read: %d %v %s", code, header, status.Message)
		}
		time.Sleep(10 * time.Millisecond) // the copy must not answer in this time
	}
	close(held)
	expect.Soon(t, "the copy answers", func() bool {
		_, header, _ := w.ask(w.pods(0), "Authorization", userToken)
		return header.Get("Watershed-Age") != ""
	})
}

// TestClassification_withheld checks that nothing reaches the cluster for a caller whose
// credentials cannot be passed on.
func TestClassification_withheld(t *testing.T) {
	count, send := newClassified(t, "only tokens are passed on")
	for _, c := range append(append([]classified{}, copied...), passedOn...) {
		if resp, text := send(c); count() > 0 {
			t.Fatalf("%s %s %v: passed on: %d %.200s", c.method, c.path, c.header, resp.StatusCode, text)
		}
	}
}

// TestClassification_tokens checks which side continues a list: the copy, also a list that the
// cluster or another replica has begun, and the cluster if the copy does not have the version.
func TestClassification_tokens(t *testing.T) {
	count, send := newClassified(t, "")
	_, text := send(classified{path: "/api/v1/pods?limit=3"})
	var page metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(text), &page); err != nil || page.Continue == "" {
		t.Fatalf("%v: %.200s", err, text)
	}
	token := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, c := range []struct {
		name, token string
		passed      bool
	}{
		{"of the copy", page.Continue, false},
		{"of the cluster", token(`{"v":"meta.k8s.io/v1","rv":` + page.ResourceVersion + `,"start":"a/b\u0000"}`), false},
		{"of the cluster, without a version", token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"a/b\u0000"}`), false},
		{
			"of the cluster, ahead of the copy",
			token(`{"v":"meta.k8s.io/v1","rv":2000000000,"start":"a/b\u0000"}`), true,
		},
		{"of the fleet", token(`{"v":"meta.k8s.io/v1","rv":5,"start":"a/b\u0000","of":"fleet"}`), false},
		{
			"of a version that the copy does not have",
			token(`{"v":"meta.k8s.io/v1","rv":5,"start":"a/b\u0000"}`), true,
		},
		{"that is not one", "x", false},
	} {
		before := count()
		resp, text := send(classified{path: "/api/v1/pods?limit=3&continue=" + c.token})
		if passed := count() > before; passed != c.passed {
			t.Errorf("a token %s: passed on %t, want %t: %d %.200s", c.name, passed, c.passed, resp.StatusCode, text)
		}
	}
}
