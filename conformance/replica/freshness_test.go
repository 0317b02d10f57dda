// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// origin is a cluster and a replica of it, whose freshness is tested.
type origin struct {
	cluster      *kubetest.Cluster
	client       *kubernetes.Clientset
	process      *program.Process
	server, copy *subject
}

// TestFreshness: reads of the copy have its age, a client can wait for its own writes,
// and a client that requests it reads from the cluster itself.
func TestFreshness(t *testing.T) {
	if os.Getenv(subjectVariable) == "server" {
		t.Skip("kube-apiserver is not a copy")
	}
	o := &origin{cluster: kubetest.Start(t, &kubetest.Options{Name: clusterName})}
	cfg := o.cluster.Config()
	cfg.QPS = -1
	var err error
	if o.client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if o.process, err = startReplica(t.Context(), t.TempDir(), o.cluster.Kubeconfig(), clusterName); err != nil {
		t.Fatal(err)
	}
	defer o.process.Stop()
	if o.server, err = newSubject("server", cfg, ""); err != nil {
		t.Fatal(err)
	}
	if o.copy, err = newSubject("replica", o.process.Config(), "/clusters/"+clusterName); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		o.write(t, "large-"+strconv.Itoa(i), strings.Repeat("what is compressed ", 3000))
	}
	for name, test := range map[string]func(*testing.T, *origin){
		"Age": testAge, "Writes": testWrites, "Consistent": testConsistent, "Watch": testConsistentWatch,
	} {
		t.Run(name, func(t *testing.T) { test(t, o) })
	}
	t.Run("Away", func(t *testing.T) { testAway(t, o) })
	if t.Failed() {
		t.Logf("the end of watershed's log:\n%s", o.process.Tail())
	}
}

const freshMaps = "/api/v1/namespaces/default/configmaps"

// write creates or changes a config map, and waits until the copy has it.
func (o *origin) write(t *testing.T, name, data string) *corev1.ConfigMap {
	t.Helper()
	m, err := putMap(t.Context(), o.client, name, data)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = expect.Until(ctx, func() error {
		a := o.copy.send(ctx, request{
			Method: http.MethodGet, URI: freshMaps + "/" + name + "?resourceVersion=" + m.ResourceVersion,
		})
		if a.err != nil || a.code != http.StatusOK {
			return fmt.Errorf("%d %w %s", a.code, a.err, a.body)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func putMap(ctx context.Context, client *kubernetes.Clientset, name, data string) (*corev1.ConfigMap, error) {
	p := &pair{clients: []*kubernetes.Clientset{client}}
	if err := p.put(ctx, 0, metav1.NamespaceDefault, name, nil, data); err != nil {
		return nil, err
	}
	return client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
}

// ageOf returns the age and the warnings of a response.
func ageOf(t *testing.T, a *answer) (time.Duration, []string) {
	t.Helper()
	if a.err != nil || a.code != http.StatusOK {
		t.Fatalf("%d %v %s", a.code, a.err, a.body)
	}
	d, err := time.ParseDuration(a.header.Get("Watershed-Age"))
	if err != nil || d < 0 {
		t.Fatalf("Watershed-Age: %q: %v", a.header.Values("Watershed-Age"), err)
	}
	return d, a.header.Values("Warning")
}

// testAge: the age is the time since the server was last heard from, so it is small after
// a write.
func testAge(t *testing.T, o *origin) {
	o.write(t, "aged", "")
	for _, uri := range []string{
		freshMaps, freshMaps + "/aged", freshMaps + "?limit=1", "/api/v1/configmaps?labelSelector=absent",
	} {
		a := o.copy.send(t.Context(), request{Method: http.MethodGet, URI: uri})
		if age, warnings := ageOf(t, a); age > 5*time.Second || len(warnings) > 0 {
			t.Errorf("%s is %v old after a write, and warns of %q", uri, age, warnings)
		}
		if got := a.header.Get("Watershed-Source"); got != "" {
			t.Errorf("%s is from %q", uri, got)
		}
	}
}

// testWrites: a read with the version of a write includes it, whatever the read is.
func testWrites(t *testing.T, o *origin) {
	rng := newRandom(t)
	reads := []request{
		{URI: freshMaps + "/%s?resourceVersion=%s", Accept: "application/json"},
		{
			URI:    freshMaps + "/%s?resourceVersion=%s",
			Accept: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		},
		{URI: freshMaps + "?fieldSelector=metadata.name=%s&resourceVersion=%s", Accept: "application/json"},
		{
			URI:    freshMaps + "?fieldSelector=metadata.name=%s&resourceVersion=%s&resourceVersionMatch=NotOlderThan",
			Accept: "application/vnd.kubernetes.protobuf",
		},
		{
			URI:    "/api/v1/configmaps?fieldSelector=metadata.name=%s&resourceVersion=%s",
			Accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		},
		{
			URI:    "/api/v1/configmaps?fieldSelector=metadata.name=%s&resourceVersion=%s&resourceVersionMatch=Exact",
			Accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		},
	}
	maps := o.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for i := range 200 {
		name := "own-" + strconv.Itoa(rng.IntN(20))
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": strconv.Itoa(i)}}
		written, err := maps.Update(t.Context(), m, metav1.UpdateOptions{})
		if err != nil {
			if written, err = maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		r := reads[rng.IntN(len(reads))]
		r.Method, r.URI = http.MethodGet, fmt.Sprintf(r.URI, name, written.ResourceVersion)
		a := o.copy.send(t.Context(), r)
		v, err := value(a)
		if err != nil || a.err != nil || a.code != http.StatusOK {
			t.Fatalf("%s: %d %v %v %s", r, a.code, a.err, err, a.body)
		}
		object := v
		if isList(v) {
			items, _ := at(v, "items").([]any)
			if len(items) != 1 {
				t.Fatalf("%s: %d objects", r, len(items))
			}
			object = items[0]
		}
		if got := text(object, "metadata", "resourceVersion"); got != written.ResourceVersion {
			t.Errorf("%s: it has version %s", r, got)
		}
	}
}

// consistent returns a request for the cluster itself, in one of the two forms.
func consistent(r request, query bool) (request, http.Header) {
	if !query {
		return r, http.Header{"Watershed-Read": {"consistent"}}
	}
	separator := "?"
	if strings.Contains(r.URI, "?") {
		separator = "&"
	}
	r.URI += separator + "watershedRead=consistent"
	return r, nil
}

// raw sends a request and returns the bytes of the response.
func raw(ctx context.Context, s *subject, r request, header http.Header) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := s.do(ctx, r, header)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// testConsistent: a response that is passed on equals the cluster's, byte for byte.
func testConsistent(t *testing.T, o *origin) {
	for _, r := range []request{
		{URI: freshMaps, Accept: "application/json"},
		{URI: freshMaps, Accept: "application/json", Encoding: "gzip"},
		{URI: freshMaps, Accept: "application/vnd.kubernetes.protobuf", Encoding: "gzip"},
		{URI: freshMaps + "?limit=2", Accept: "application/vnd.kubernetes.protobuf"},
		{URI: freshMaps + "?limit=x", Accept: "application/json"},
		{URI: freshMaps + "/large-1", Accept: "application/yaml"},
		{URI: freshMaps + "/large-1", Accept: "text/html"},
		{URI: freshMaps + "/absent", Accept: "application/json"},
		{URI: freshMaps + "/absent", Accept: "application/vnd.kubernetes.protobuf"},
		{
			URI:    freshMaps + "?labelSelector=a%3Db%2Cc",
			Accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		},
	} {
		for _, query := range []bool{false, true} {
			r.Method = http.MethodGet
			want, wantBody, err := raw(t.Context(), o.server, r, nil)
			if err != nil {
				t.Fatal(err)
			}
			asked, header := consistent(r, query)
			got, body, err := raw(t.Context(), o.copy, asked, header)
			if err != nil {
				t.Fatal(err)
			}
			if got.StatusCode != want.StatusCode || !bytes.Equal(body, wantBody) {
				t.Errorf("%s: %s %.200q, want %s %.200q", asked, got.Status, body, want.Status, wantBody)
			}
			if got.Header.Get("Watershed-Source") != "origin" || got.Header.Get("Audit-Id") == "" ||
				got.Header.Get("Watershed-Age") != "" {
				t.Errorf("%s: the headers are %v", asked, got.Header)
			}
			for _, name := range []string{
				"Content-Type", "Content-Encoding", "Content-Length", "Cache-Control", "X-Kubernetes-Pf-Flowschema-Uid",
			} {
				if !slices.Equal(got.Header.Values(name), want.Header.Values(name)) {
					t.Errorf("%s: %s is %q, want %q", asked, name, got.Header.Values(name), want.Header.Values(name))
				}
			}
		}
	}
	// The response is current without waiting.
	for i := range 20 {
		m, err := putMap(t.Context(), o.client, "current", strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		asked, header := consistent(request{
			Method: http.MethodGet, URI: freshMaps + "/current", Accept: "application/json",
		}, i%2 == 0)
		_, body, err := raw(t.Context(), o.copy, asked, header)
		v, wrong := fromJSON(body)
		if err != nil || wrong != nil || text(v, "metadata", "resourceVersion") != m.ResourceVersion {
			t.Errorf("%s after version %s: %v %v %s", asked, m.ResourceVersion, err, wrong, body)
		}
	}
}

// testConsistentWatch: a watch that is passed on begins before the first event, and sends
// changes when they happen.
func testConsistentWatch(t *testing.T, o *origin) {
	m := o.write(t, "seen", "0")
	asked, header := consistent(request{
		Method: http.MethodGet,
		URI:    freshMaps + "?watch=1&resourceVersion=" + m.ResourceVersion,
		Accept: "application/json",
	}, false)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := o.copy.do(ctx, asked, header)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Watershed-Source"); got != "origin" || resp.StatusCode != http.StatusOK {
		t.Errorf("the watch is from %q: %s", got, resp.Status)
	}
	if _, err := putMap(t.Context(), o.client, "seen", "1"); err != nil {
		t.Fatal(err)
	}
	var got []event
	err = readEvents(resp, func(e event) {
		got = append(got, e)
		cancel()
	})
	if len(got) == 0 || got[0].kind != string(watch.Modified) || text(got[0].object, "data", "is") != "1" {
		t.Errorf("the watch tells of %v: %v", got, err)
	}
}

// testAway: while the cluster is unreachable, the copy is served with its age, and a
// request to be passed on fails at once.
func testAway(t *testing.T, o *origin) {
	o.write(t, "kept", "")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	ask := func(uri string) *answer {
		return o.copy.send(ctx, request{Method: http.MethodGet, URI: uri, Accept: "application/json"})
	}
	o.cluster.APIServer.Kill()
	ages := map[string]time.Duration{}
	for _, uri := range []string{freshMaps, freshMaps + "/kept"} {
		err := expect.Until(ctx, func() error {
			age, warnings := ageOf(t, ask(uri))
			ages[uri] = age
			if len(warnings) != 1 || !strings.HasPrefix(warnings[0], `299 - "cluster real has been stale for `) {
				return fmt.Errorf("%s warns of %q", uri, warnings)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second) // the copy gets older by this time
	for uri, before := range ages {
		if age, _ := ageOf(t, ask(uri)); age < before+900*time.Millisecond {
			t.Errorf("%s is %v old, and was %v a second ago", uri, age, before)
		}
	}
	for _, uri := range []string{freshMaps, freshMaps + "/kept", freshMaps + "?watch=1"} {
		asked, header := consistent(request{Method: http.MethodGet, URI: uri, Accept: "application/json"}, false)
		start := time.Now()
		resp, body, err := raw(ctx, o.copy, asked, header)
		if err != nil {
			t.Fatal(err)
		}
		v, err := fromJSON(body)
		if resp.StatusCode < 500 || err != nil || text(v, "kind") != "Status" || time.Since(start) > 10*time.Second {
			t.Errorf("%s: %s %s after %v: %v", asked, resp.Status, body, time.Since(start), err)
		}
	}
	if err := o.cluster.APIServer.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for uri := range ages {
		err := expect.Until(ctx, func() error {
			if _, warnings := ageOf(t, ask(uri)); len(warnings) > 0 {
				return fmt.Errorf("%s warns of %q", uri, warnings)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	testAge(t, o)
	asked, header := consistent(request{
		Method: http.MethodGet, URI: freshMaps + "/kept", Accept: "application/json",
	}, false)
	if resp, body, err := raw(ctx, o.copy, asked, header); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %v %s", asked, err, body)
	}
}
