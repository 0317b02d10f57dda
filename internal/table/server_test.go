// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/semver"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
	"github.com/watershed-project/watershed/internal/table"
)

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// hopelessError ends the retries.
type hopelessError struct{ error }

func hopeless(err error) error { return hopelessError{err} }

// eventually retries until it succeeds.
func eventually(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || errors.As(err, &hopelessError{}) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// server sends plain requests to kube-apiserver.
type server struct {
	url    string
	client *http.Client
}

func (s *server) get(ctx context.Context, path, accept string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, resp.Status, b)
	}
	return b, err
}

// table requests a table, and returns when the request was sent and when the response
// arrived.
func (s *server) table(ctx context.Context, path string) (t metav1.Table, begin, end time.Time, err error) {
	begin = time.Now()
	b, err := s.get(ctx, path, asTable)
	end = time.Now()
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	return t, begin, end, err
}

// TestServer compares every table that kube-apiserver prints with ours.
func TestServer(t *testing.T) {
	if v := os.Getenv(binaries.VersionVariable); v != "" && semver.Compare(v, "v1.37.0") < 0 {
		t.Skipf("Kubernetes %s prints other tables than 1.37", v)
	}
	k := kubetest.Start(t, &kubetest.Options{
		Name:          "table",
		APIServerArgs: []string{"--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cfg := quiet(k)
	populate(ctx, t, k, read(t, "testdata/objects.yaml"))
	widgets := read(t, "testdata/widgets.yaml")
	populate(ctx, t, k, widgets)

	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	s := &server{url: k.URL(), client: client}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, resources, err := d.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}

	// Discovery fails from here on: this server never responds.
	populate(ctx, t, k, []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.nowhere.example.com"},
		"spec": map[string]any{
			"group": "nowhere.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nowhere"},
		},
	}}})

	var mu sync.Mutex
	var all sync.WaitGroup
	kinds, filled, rows := 0, 0, 0
	for version, r := range listable(resources) {
		printer, err := printerOf(version.WithKind(r.Kind), widgets)
		if err != nil {
			t.Errorf("%s %s: %v", version, r.Name, err)
			continue
		}
		kinds++
		all.Go(func() {
			c := comparison{
				server: s, printer: printer, path: pathOf(version.WithResource(r.Name)), kind: version.WithKind(r.Kind),
			}
			encodings := []string{"application/json"}
			if scheme.Scheme.Recognizes(c.kind) {
				encodings = append(encodings, runtime.ContentTypeProtobuf)
			}
			n := 0
			for _, encoding := range encodings {
				if n, err = c.list(ctx, encoding); err != nil {
					t.Errorf("%s as %s: %v", c.path, encoding, err)
				}
			}
			if err := c.first(ctx); err != nil {
				t.Errorf("one of %s: %v", c.path, err)
			}
			mu.Lock()
			defer mu.Unlock()
			rows += n
			if n > 0 {
				filled++
			} else {
				t.Logf("%s has no objects", c.path)
			}
		})
	}
	all.Wait()
	t.Logf("%d kinds, %d with objects, %d rows", kinds, filled, rows)
	if kinds < 93 || filled < 90 || rows < 400 {
		t.Errorf("%d kinds, %d with objects, %d rows are too few to say anything", kinds, filled, rows)
	}
}

// listable returns the resources that can be listed, with their versions.
func listable(lists []*metav1.APIResourceList) iter.Seq2[schema.GroupVersion, metav1.APIResource] {
	return func(yield func(schema.GroupVersion, metav1.APIResource) bool) {
		for _, list := range lists {
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			for _, r := range list.APIResources {
				if err == nil && slices.Contains(r.Verbs, "list") && !yield(version, r) {
					return
				}
			}
		}
	}
}

// printerOf returns the printer of a kind, by its definition if it is custom.
func printerOf(kind schema.GroupVersionKind, definitions []*unstructured.Unstructured) (*table.Printer, error) {
	if p, ok := table.For(kind); ok {
		return p, nil
	}
	for _, d := range definitions {
		name, _, _ := unstructured.NestedString(d.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		if name != kind.Kind || kind.Group != "example.com" {
			continue
		}
		for _, v := range versions {
			var version struct {
				Name                     string
				AdditionalPrinterColumns []table.Column
			}
			b, err := json.Marshal(v)
			if err == nil {
				err = json.Unmarshal(b, &version)
			}
			if err != nil || version.Name != kind.Version {
				continue
			}
			// The printer is wanted even if it has a bad column.
			p, _ := table.Custom(version.AdditionalPrinterColumns)
			return p, nil
		}
	}
	return nil, errors.New("no printer")
}

func pathOf(r schema.GroupVersionResource) string {
	if r.Group == "" {
		return "/api/" + r.Version + "/" + r.Resource
	}
	return "/apis/" + r.Group + "/" + r.Version + "/" + r.Resource
}

// comparison compares the tables of one kind.
type comparison struct {
	server  *server
	printer *table.Printer
	path    string
	kind    schema.GroupVersionKind
}

// list compares the table of all objects and returns how many there are.
func (c *comparison) list(ctx context.Context, encoding string) (int, error) {
	b, err := c.server.get(ctx, c.path, encoding)
	if err != nil {
		return 0, err
	}
	list, err := decode(b, c.kind)
	if err != nil {
		return 0, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return 0, err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return 0, err
	}
	path := c.path
	if c.kind.Kind == "ComponentStatus" {
		return len(objects), nil // each list has another order: see first
	}
	if v := accessor.GetResourceVersion(); v != "" {
		path += "?resourceVersionMatch=Exact&resourceVersion=" + v
	}
	return len(objects), c.compare(ctx, path, func(now time.Time) ([]metav1.TableRow, error) {
		return c.printer.Rows(objects, now)
	})
}

// first compares the table of one object.
func (c *comparison) first(ctx context.Context) error {
	b, err := c.server.get(ctx, c.path, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	if err != nil {
		return err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(b, &list); err != nil || len(list.Items) == 0 {
		return err
	}
	path := c.path + "/" + list.Items[0].Name
	if ns := list.Items[0].Namespace; ns != "" {
		cut := strings.LastIndex(c.path, "/")
		path = c.path[:cut] + "/namespaces/" + ns + path[cut:]
	}
	b, err = c.server.get(ctx, path, "application/json")
	if err != nil {
		return err
	}
	obj, err := decode(b, c.kind)
	if err != nil {
		return err
	}
	return c.compare(ctx, path, func(now time.Time) ([]metav1.TableRow, error) {
		row, err := c.printer.Row(obj, now)
		return []metav1.TableRow{row}, err
	})
}

// compare requests a table and compares it with ours. An age is correct if it was correct
// when the request was sent or when the response arrived.
func (c *comparison) compare(
	ctx context.Context, path string, print func(now time.Time) ([]metav1.TableRow, error),
) error {
	return eventually(ctx, func() error {
		want, begin, end, err := c.server.table(ctx, path)
		if err != nil {
			return err
		}
		if end.Sub(begin) > time.Second {
			return fmt.Errorf("the server took %s", end.Sub(begin))
		}
		before, err := print(begin)
		if err != nil {
			return hopeless(err)
		}
		after, err := print(end)
		if err == nil {
			err = same(want, c.printer.Columns(), before, after)
		}
		if err != nil {
			return hopeless(err)
		}
		return nil
	})
}

func same(want metav1.Table, columns []metav1.TableColumnDefinition, before, after []metav1.TableRow) error {
	if d := cmp.Diff(want.ColumnDefinitions, columns); d != "" {
		return fmt.Errorf("columns, the server's and ours:\n%s", d)
	}
	if len(want.Rows) != len(before) {
		return fmt.Errorf("%d rows, the server has %d", len(before), len(want.Rows))
	}
	for i := range want.Rows {
		w, b, a := &want.Rows[i], throughJSON(before[i].Cells), throughJSON(after[i].Cells)
		if len(w.Cells) != len(b) {
			return fmt.Errorf("row %d is %q, the server's is %q", i, b, w.Cells)
		}
		for j := range w.Cells {
			if !reflect.DeepEqual(w.Cells[j], b[j]) && !reflect.DeepEqual(w.Cells[j], a[j]) {
				return fmt.Errorf("row %d has %#v in cell %d, the server's has %#v: %q and %q", i, b[j], j, w.Cells[j],
					b, w.Cells)
			}
		}
		if d := cmp.Diff(w.Conditions, before[i].Conditions); d != "" {
			return fmt.Errorf("conditions of row %d %q, the server's and ours:\n%s", i, b, d)
		}
	}
	return nil
}

// throughJSON returns cells as a client receives them.
func throughJSON(cells []any) []any {
	b, err := json.Marshal(metav1.TableRow{Cells: cells})
	if err != nil {
		return []any{err}
	}
	var row metav1.TableRow
	if err := json.Unmarshal(b, &row); err != nil {
		return []any{err}
	}
	return row.Cells
}

// decode returns an object as the replica has it: a typed value, or an unstructured one.
func decode(b []byte, kind schema.GroupVersionKind) (runtime.Object, error) {
	if scheme.Scheme.Recognizes(kind) {
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
		return obj, err
	}
	obj, _, err := unstructured.UnstructuredJSONScheme.Decode(b, nil, nil)
	return obj, err
}
