// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/semver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubefields "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/fields"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// labels are tried with every kind, together with the labels of its set: those of all
// kinds in the newest release, some that kinds have in their registry but not for
// clients, and some that no kind has.
var labels = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "name", "nonsense", "", "spec", "status.phase.more",
	"spec.nodeName", "spec.host", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
	"spec.hostNetwork",
	"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
	"spec.unschedulable", "type", "spec.type", "spec.clusterIP", "status.replicas", "status.successful",
	"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
	"involvedObject.apiVersion",
	"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source",
	"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "regarding.apiVersion",
	"regarding.resourceVersion", "regarding.fieldPath", "reportingController",
	"spec.signerName", "spec.podName", "spec.leaseName", "spec.driver", "spec.pool.name",
	"spec.color", "spec.size", "spec.shiny", "spec.deep.with-dash", ".spec.color",
}

// special are selectors that are not simple terms.
var special = []string{
	"", ",", "metadata.name", "metadata.name=a=b", `metadata.name=a\q`, `metadata.name=a\`, `metadata.name!=a\,b`,
	"metadata.name=a,nonsense=b", "nonsense=a,metadata.name=b", "metadata.name=a,,metadata.name=a", " metadata.name=a",
	"metadata.name=a,metadata.name=b", "metadata.name!=a,metadata.name!=b", "metadata.name in (a)", "=", "!=", "a!b",
}

// TestServer lists objects of every kind by every label from kube-apiserver, and expects
// the same results from the package.
func TestServer(t *testing.T) {
	if v := os.Getenv(binaries.VersionVariable); v != "" && semver.Compare(v, "v1.37.0") < 0 {
		t.Skipf("Kubernetes %s has other labels than 1.37", v)
	}
	k := kubetest.Start(t, &kubetest.Options{
		Name:          "fields",
		APIServerArgs: []string{"--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	populate(ctx, t, k)

	cfg := k.Config()
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := d.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	var all sync.WaitGroup
	var sum count
	slots := make(chan struct{}, 4)
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			kind := version.WithKind(r.Kind)
			c := comparison{
				client: client, url: k.URL() + pathOf(version.WithResource(r.Name)), kind: kind, set: setOf(t, kind),
			}
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				n, err := c.run(ctx)
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				mu.Lock()
				defer mu.Unlock()
				sum.add(n)
			})
		}
	}
	all.Wait()
	t.Logf("%+v", sum)
	if sum.kinds < 96 || sum.refused < 4000 || sum.some < 150 {
		t.Errorf("%+v is too little to say anything", sum)
	}
}

// setOf returns the set of a kind, by testdata if it is custom.
func setOf(t *testing.T, kind schema.GroupVersionKind) *fields.Set {
	t.Helper()
	var paths []string
	switch kind {
	case schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}:
		paths = []string{".spec.color", ".spec.size", ".spec.shiny", ".spec.deep.with-dash"}
	case schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}:
		paths = []string{".spec.color"}
	case schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}:
	default:
		return fields.For(kind)
	}
	s, err := fields.Custom(kind.Kind == "Widget", paths)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pathOf(r schema.GroupVersionResource) string {
	if r.Group == "" {
		return "/api/" + r.Version + "/" + r.Resource
	}
	return "/apis/" + r.Group + "/" + r.Version + "/" + r.Resource
}

// count counts selectors: those that were refused, and those that selected all objects,
// none, or some but not all.
type count struct{ kinds, refused, all, none, some int }

func (c *count) add(o count) {
	c.kinds += o.kinds
	c.refused += o.refused
	c.all += o.all
	c.none += o.none
	c.some += o.some
}

// comparison compares the results for one kind.
type comparison struct {
	client *http.Client
	url    string
	kind   schema.GroupVersionKind
	set    *fields.Set
}

func (c *comparison) run(ctx context.Context) (count, error) {
	n := count{kinds: 1}
	b, err := c.get(ctx, "application/json", nil)
	if err != nil {
		return n, err
	}
	objects, version, err := decode(b, c.kind)
	if err != nil {
		return n, err
	}
	query := url.Values{}
	if version != "" {
		query.Set("resourceVersion", version)
		query.Set("resourceVersionMatch", "Exact")
	}
	for _, selector := range c.selectors(b) {
		query.Set("fieldSelector", selector)
		want, wantErr := c.selected(ctx, query)
		got, gotErr := c.ours(objects, selector)
		if err := sameError(wantErr, gotErr); err != nil {
			return n, fmt.Errorf("%q: %w", selector, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			return n, fmt.Errorf("%q selects, the server and we:\n%s", selector, d)
		}
		switch {
		case wantErr != nil:
			n.refused++
		case len(want) == len(objects):
			n.all++
		case len(want) == 0:
			n.none++
		default:
			n.some++
		}
	}
	return n, nil
}

// selectors returns the selectors to test for a kind whose list was read: every label
// with some values that the list has for it, and the special ones.
func (c *comparison) selectors(list []byte) []string {
	all := slices.Clone(special)
	var terms []string
	tried := slices.AppendSeq(slices.Clone(labels), c.set.Labels())
	slices.Sort(tried)
	for _, label := range slices.Compact(tried) {
		all = append(all, label+"=other")
		if !c.set.Supports(label) {
			continue // if the server does support it, the comparison with that label fails
		}
		for value := range valuesAt(list, label) {
			value = kubefields.EscapeValue(value)
			terms = append(terms, label+"="+value)
			all = append(all, label+"="+value, label+"=="+value, label+"!="+value)
		}
		all = append(all, label+"=", label+"!=", label+"!=other", label+"=true", label+"=false", label+"=0")
	}
	for i := range terms {
		other := terms[(i*7+3)%len(terms)]
		all = append(all, terms[i]+","+other, strings.Replace(terms[i], "=", "!=", 1)+","+other)
	}
	return all
}

// valuesAt returns some values of the field in a list whose path is a label.
func valuesAt(list []byte, label string) map[string]bool {
	var l struct{ Items []map[string]any }
	values := map[string]bool{}
	if json.Unmarshal(list, &l) != nil {
		return values
	}
	for _, o := range l.Items {
		if value, ok, _ := unstructured.NestedFieldNoCopy(o, strings.Split(label, ".")...); ok {
			if len(values) < 6 {
				values[fmt.Sprint(value)] = true
			}
		}
	}
	return values
}

func (c *comparison) get(ctx context.Context, accept string, query url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		status := metav1.Status{}
		if err := json.Unmarshal(b, &status); err != nil {
			return nil, fmt.Errorf("%s: %w", resp.Status, err)
		}
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	return b, err
}

// selected returns the objects that the server selects.
func (c *comparison) selected(ctx context.Context, query url.Values) ([]string, error) {
	b, err := c.get(ctx, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", query)
	if err != nil {
		return nil, err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range list.Items {
		names[list.Items[i].Namespace+"/"+list.Items[i].Name] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// ours returns the objects that the package selects.
func (c *comparison) ours(objects []runtime.Object, text string) ([]string, error) {
	selector, err := c.set.Parse(text)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, obj := range objects {
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		if selector.Matches(c.set.Of(obj)) {
			names[m.GetNamespace()+"/"+m.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// sameError compares the statuses that a client receives.
func sameError(want, got error) error {
	var w, g apierrors.APIStatus
	switch {
	case want == nil && got == nil:
		return nil
	case !errors.As(want, &w) || !errors.As(got, &g):
		return fmt.Errorf("the server says %s, we say %s", fmt.Sprint(want), fmt.Sprint(got))
	}
	ws, gs := w.Status(), g.Status()
	ws.TypeMeta = gs.TypeMeta // the encoder sets it
	if d := cmp.Diff(ws, gs); d != "" {
		return fmt.Errorf("statuses, the server's and ours:\n%s", d)
	}
	return nil
}

// decode returns the objects of a list, typed if possible, and the version of the list.
func decode(b []byte, kind schema.GroupVersionKind) ([]runtime.Object, string, error) {
	decode := unstructured.UnstructuredJSONScheme.Decode
	if scheme.Scheme.Recognizes(kind) {
		decode = scheme.Codecs.UniversalDeserializer().Decode
	}
	list, _, err := decode(b, nil, nil)
	if err != nil {
		return nil, "", err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	objects, err := meta.ExtractList(list)
	return objects, accessor.GetResourceVersion(), err
}
