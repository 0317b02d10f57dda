// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/jsondiff"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// pastChanges is how many changes the test makes.
const pastChanges = 250

// pastReader reads from the replica or from the cluster.
type pastReader struct {
	t      *testing.T
	root   string
	token  string
	client *http.Client
}

// readAs returns a reader with a token.
func readAs(t *testing.T, root, token string, authority []byte) *pastReader {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &pastReader{t, root, token, &http.Client{Transport: transport}}
}

// get returns a response.
func (p *pastReader) get(path string, query url.Values) (code int, header http.Header, body []byte) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.root+path+"?"+query.Encode(), http.NoBody)
	expect.NoError(p.t, err)
	r.Header.Set("Authorization", "Bearer "+p.token)
	response, err := p.client.Do(r)
	expect.NoError(p.t, err)
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	expect.NoError(p.t, err)
	return response.StatusCode, response.Header, body
}

// pastList is a list as it was.
type pastList struct {
	metav1.ListMeta `json:"metadata"`
	Items           []map[string]any
	at              time.Time
}

// list returns a list, which may have several pages.
func (p *pastReader) list(path string, query url.Values) (all pastList) {
	p.t.Helper()
	for {
		code, header, body := p.get(path, query)
		if code != http.StatusOK {
			p.t.Fatalf("%s?%s: %d %s", path, query.Encode(), code, body)
		}
		var page pastList
		expect.NoError(p.t, json.Unmarshal(body, &page))
		all.Items = append(all.Items, page.Items...)
		if text := header.Get("Watershed-State-Time"); text != "" {
			var err error
			all.at, err = time.Parse(time.RFC3339Nano, text)
			expect.NoError(p.t, err)
		}
		all.ResourceVersion = page.ResourceVersion
		if page.Continue == "" {
			return all
		}
		query = url.Values{"continue": {page.Continue}, "limit": query["limit"]}
	}
}

// writePast makes random changes of configmaps, each of 20 KB, and returns the versions of the
// objects that it has written. The first two create and update item-3 of the first namespace,
// so that its changes can be examined whatever follows.
func writePast(
	t *testing.T, client kubernetes.Interface, r *rand.Rand, namespaces []string, changes int,
) (versions []string) {
	t.Helper()
	exist := map[string]bool{}
	for i := range changes {
		namespace, name := namespaces[r.IntN(len(namespaces))], fmt.Sprintf("item-%d", r.IntN(12))
		if i < 2 {
			namespace, name = namespaces[0], "item-3"
		}
		maps, key := client.CoreV1().ConfigMaps(namespace), namespace+"/"+name
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"n": fmt.Sprint(i % 3)}},
			Data: map[string]string{
				"text": fmt.Sprint(i, r.Uint64(), strings.Repeat(fmt.Sprintf("%016x", r.Uint64()), 1200)),
			},
		}
		var written *corev1.ConfigMap
		var err error
		switch {
		case !exist[key]:
			written, err = maps.Create(t.Context(), object, metav1.CreateOptions{})
			exist[key] = true
		case i >= 2 && r.IntN(4) == 0:
			err = maps.Delete(t.Context(), name, metav1.DeleteOptions{})
			exist[key] = false
		default:
			written, err = maps.Update(t.Context(), object, metav1.UpdateOptions{})
		}
		expect.NoError(t, err)
		if written != nil {
			versions = append(versions, written.ResourceVersion)
		}
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond) // the moments between changes are read, too
	}
	return versions
}

// TestPast_real reads the past of a real cluster by version and by time, and compares it
// with what etcd has at the same version.
func TestPast_real(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	c := kubetest.Start(t, &kubetest.Options{
		Name:  "a",
		Users: []kubetest.User{{Name: "ann"}, {Name: "eve", Groups: []string{"system:masters"}}},
	})
	client := kubernetes.NewForConfigOrDie(c.Config())
	namespaces := []string{"red", "green"}
	for _, name := range namespaces {
		createNamespace(t, client, name)
	}
	dir := filepath.Join(t.TempDir(), "data")
	s := &state.Dir{Path: t.TempDir()}
	startServe(t, s, "--kubeconfig", c.Kubeconfig(), "--context", c.Name(), "--resources", "configmaps,namespaces",
		"--home", c.Name(), "--data-dir", dir, "--history", "1")
	target, err := apiclient.LocalTarget(*s, "")
	expect.NoError(t, err)
	as := func(token string) *pastReader { return readAs(t, target.URL+"/clusters/a", token, target.Authority) }
	owner := as(target.Owner)
	direct := readAs(t, c.Config().Host, c.UserConfig("eve").BearerToken, c.Config().CAData)
	began := time.Now()
	expect.Soon(t, "the first state is stored", func() bool {
		began = time.Now()
		code, _, _ := owner.get("/api/v1/configmaps", url.Values{"at": {began.Format(time.RFC3339Nano)}})
		return code == http.StatusOK
	})
	versions := writePast(t, client, r, namespaces, pastChanges)
	ended := time.Now()
	last := versions[len(versions)-1]
	expect.Soon(t, "the copy has the last change", func() bool {
		code, _, _ := owner.get("/api/v1/configmaps", url.Values{
			"resourceVersion":      {last},
			"resourceVersionMatch": {"Exact"},
		})
		return code == http.StatusOK
	})

	compare := func(what string, got pastList) {
		t.Helper()
		want := direct.list("/api/v1/configmaps", url.Values{
			"resourceVersion":      {got.ResourceVersion},
			"resourceVersionMatch": {"Exact"},
		})
		if !reflect.DeepEqual(got.Items, want.Items) {
			t.Errorf("%s, version %s: %d objects, and etcd had %d, or others", what, got.ResourceVersion,
				len(got.Items), len(want.Items))
		}
	}
	for range 40 {
		version := versions[r.IntN(len(versions))]
		compare("version", owner.list("/api/v1/configmaps", url.Values{
			"resourceVersion":      {version},
			"resourceVersionMatch": {"Exact"},
		}))
	}
	var before pastList
	states := map[string]bool{}
	const steps = 60
	for i := range steps {
		at := began.Add(ended.Sub(began) * time.Duration(i) / steps)
		query := url.Values{"at": {at.Format(time.RFC3339Nano)}}
		if i%2 == 1 {
			query.Set("limit", "5")
		}
		got := owner.list("/api/v1/configmaps", query)
		compare("time", got)
		if got.at.After(at) || got.at.Before(before.at) {
			t.Errorf("the state of %v is from %v, and that before from %v", at, got.at, before.at)
		}
		before, states[got.ResourceVersion] = got, true
		checkPastGet(t, owner, got, at)
	}
	t.Logf("%d changes in %v, %d states", len(versions), ended.Sub(began), len(states))
	if len(states) < steps/2 {
		t.Error("hardly a test")
	}
	for query, want := range map[string]string{
		"at=tomorrow": "neither a time", "at=-1h": "future", "at=1s&watch=true": "cannot be watched",
		"at=1s&resourceVersion=1": "combined", "at=2000h": "begins at",
	} {
		values, err := url.ParseQuery(query)
		expect.NoError(t, err)
		if code, _, body := owner.get("/api/v1/configmaps", values); code < 400 || code >= 500 ||
			!strings.Contains(string(body), want) {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	checkPastChanges(t, owner, direct, began)
	checkLogCommand(t, s.Path, began)
	checkChangesCommand(t, s.Path, began, ended)
	checkDiffCommand(t, owner, s.Path, began.Add(ended.Sub(began)/3), began.Add(ended.Sub(began)*2/3))
	fleet := func(token string) *pastReader { return readAs(t, target.URL+"/fleet", token, target.Authority) }
	half := began.Add(ended.Sub(began) / 2)
	checkFleetPast(t, owner, fleet(target.Owner), half)
	checkPastRights(t, c, client, as, fleet, half)
}

// checkPastGet compares a get of the past with the list of the same time.
func checkPastGet(t *testing.T, from *pastReader, list pastList, at time.Time) {
	t.Helper()
	code, _, body := from.get("/api/v1/namespaces/red/configmaps/item-3",
		url.Values{"at": {at.Format(time.RFC3339Nano)}})
	var want map[string]any
	for _, item := range list.Items {
		if meta := item["metadata"].(map[string]any); meta["name"] == "item-3" && meta["namespace"] == "red" {
			want = item
		}
	}
	if want == nil {
		if code != http.StatusNotFound {
			t.Errorf("at %v: %d", at, code)
		}
		return
	}
	var got map[string]any
	expect.NoError(t, json.Unmarshal(body, &got))
	delete(got, "kind")
	delete(got, "apiVersion")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("at %v: %d %s", at, code, body)
	}
}

// checkPastChanges compares the changes of an object with the events of a watch of the
// cluster, and each difference with the states of the object in them.
func checkPastChanges(t *testing.T, from, direct *pastReader, began time.Time) {
	t.Helper()
	const path, name = "/api/v1/namespaces/red/configmaps", "item-3"
	code, _, body := from.get(path+"/"+name, url.Values{"changes": {began.Format(time.RFC3339Nano)}})
	var changes document.ChangeList
	if err := json.Unmarshal(body, &changes); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	start := from.list(path, url.Values{"at": {began.Format(time.RFC3339Nano)}})
	_, _, events := direct.get(path, url.Values{
		"watch":           {"1"},
		"resourceVersion": {start.ResourceVersion},
		"timeoutSeconds":  {"2"},
		"fieldSelector":   {"metadata.name=" + name},
	})
	var text string
	lines := bytes.Split(bytes.TrimSpace(events), []byte("\n"))
	if len(lines) != len(changes.Items) || len(lines) < 3 {
		t.Fatalf("%d changes, and the cluster has %d", len(changes.Items), len(lines))
	}
	for i, line := range lines {
		var event struct {
			Type   string
			Object corev1.ConfigMap
		}
		expect.NoError(t, json.Unmarshal(line, &event))
		got := changes.Items[i]
		if got.Type != event.Type || got.ResourceVersion != event.Object.ResourceVersion || got.Name != name ||
			got.Namespace != "red" {
			t.Errorf("change %d is %+v, and the event %s %s", i, got, event.Type, event.Object.ResourceVersion)
		}
		if want := event.Object.ManagedFields[0].Manager; event.Type != "DELETED" &&
			(len(got.Managers) != 1 || got.Managers[0] != want) {
			t.Errorf("change %d has the managers %v, want %s", i, got.Managers, want)
		}
		if event.Type == "MODIFIED" {
			d := got.Differences
			at := slices.IndexFunc(d, func(d jsondiff.Difference) bool { return d.Path == "data.text" })
			if at < 0 || string(d[at].Old) != strconv.Quote(text) ||
				string(d[at].New) != strconv.Quote(event.Object.Data["text"]) {
				t.Errorf("change %d has the differences %.300s, %s", i, fmt.Sprint(d), got.Message)
			}
		}
		text = event.Object.Data["text"]
	}
}

// checkLogCommand shows the changes of an object in a terminal.
func checkLogCommand(t *testing.T, dir string, began time.Time) {
	t.Helper()
	for _, kind := range []string{"configmap", "cm", "configmaps", "ConfigMap"} {
		out, err := command(t.Context(), "log", kind+"/item-3", "-n", "red", "--state-dir", dir, "--since",
			began.Format(time.RFC3339Nano))
		expect.NoError(t, err)
		for _, want := range []string{
			"changed configmaps red/item-3 in a, version ", "created configmaps red/item-3 in a, version ",
			"\nManager: ", "    data.text: \"", " -> \"", "characters)\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", kind, want, out)
			}
		}
		if kind == "cm" {
			t.Log(out)
		}
		first, last := strings.Index(out, "changed "), strings.LastIndex(out, "created ")
		if first < 0 || last < first {
			t.Errorf("%s: not the newest first:\n%s", kind, out)
		}
	}
	out, err := command(t.Context(), "log", "cm", "-n", "green", "--state-dir", dir, "-o", "json", "--since", "1h")
	expect.NoError(t, err)
	var green document.ChangeList
	expect.NoError(t, json.Unmarshal([]byte(out), &green))
	if strings.Contains(out, `"namespace": "red"`) || len(green.Items) < 50 {
		t.Errorf("the changes of a namespace:\n%.500s", out)
	}
	for _, args := range [][]string{
		{"log", "pizza/x"},
		{"log", "cm/x", "--cluster", "mars"},
		{"log", "cm/x", "-o", "table"},
		{"log", "cm/x", "--since", "yesterday"},
	} {
		if out, err := command(t.Context(), append(args, "--state-dir", dir)...); err == nil {
			t.Errorf("%v succeeds:\n%s", args, out)
		} else {
			t.Log(err)
		}
	}
}

// checkChangesCommand counts the changes of the test.
func checkChangesCommand(t *testing.T, dir string, began, ended time.Time) {
	t.Helper()
	period := []string{
		"--state-dir", dir, "--since", began.Format(time.RFC3339Nano), "--until",
		ended.Add(500 * time.Millisecond).Format(time.RFC3339Nano),
	}
	out, err := command(t.Context(), append([]string{
		"changes", "-o", "json", "--by", "kind,namespace,type",
	}, period...)...)
	expect.NoError(t, err)
	var all document.ChangeSummary
	expect.NoError(t, json.Unmarshal([]byte(out), &all))
	sum, types := 0, map[string]bool{}
	for _, c := range all.Items {
		if c.Resource == "configmaps" && (c.Namespace == "red" || c.Namespace == "green") {
			sum += c.Count
			types[c.Type] = true
		}
	}
	if sum != pastChanges || len(types) != 3 {
		t.Errorf("%d changes of %v, want %d:\n%s", sum, types, pastChanges, out)
	}
	out, err = command(t.Context(), append([]string{"changes", "--by", "cluster,kind,manager"}, period...)...)
	expect.NoError(t, err)
	t.Log(out)
	if !strings.Contains(out, "CHANGES   CLUSTER   KIND         MANAGER\n") || !strings.Contains(out, " changes, ") {
		t.Errorf("changes prints\n%s", out)
	}
	if out, err := command(t.Context(), append([]string{"changes", "--by", "mood"}, period...)...); err == nil {
		t.Errorf("changes by mood:\n%s", out)
	}
}

// checkDiffCommand compares two times, and the result with the lists of both.
func checkDiffCommand(t *testing.T, from *pastReader, dir string, one, other time.Time) {
	t.Helper()
	at := func(at time.Time) string { return at.Format(time.RFC3339Nano) }
	var states [2]map[string]any
	for i, at := range []string{at(one), at(other)} {
		states[i] = map[string]any{}
		for _, item := range from.list("/api/v1/namespaces/red/configmaps", url.Values{"at": {at}}).Items {
			states[i][fmt.Sprint("red/",
				item["metadata"].(map[string]any)["name"])] = item["metadata"].(map[string]any)["resourceVersion"]
		}
	}
	want := map[string]string{}
	for name, version := range states[1] {
		if old := states[0][name]; old == nil {
			want[name] = "ADDED"
		} else if old != version {
			want[name] = "MODIFIED"
		}
	}
	for name := range states[0] {
		if states[1][name] == nil {
			want[name] = "DELETED"
		}
	}
	out, err := command(t.Context(), "diff", "cm", "-n", "red", "--state-dir", dir, "-o", "json", "--at", at(one),
		"--at", at(other))
	expect.NoError(t, err)
	got := map[string]string{}
	var all document.ChangeList
	expect.NoError(t, json.Unmarshal([]byte(out), &all))
	for _, c := range all.Items {
		got[c.Name] = c.Type
		if c.Type == "MODIFIED" && len(c.Differences) < 1 {
			t.Errorf("%s has the differences %v", c.Name, c.Differences)
		}
	}
	if !maps.Equal(got, want) || len(want) < 3 {
		t.Errorf("the differences are %v, want %v", got, want)
	}
	out, err = command(t.Context(), "diff", "cm", "-n", "red", "--state-dir", dir, "--at", at(one))
	expect.NoError(t, err)
	t.Logf("%.600s", out)
}

// checkPastRights deletes a namespace and creates it again. A user of the new one may not
// read the past of the old one, neither from the cluster nor from the fleet.
func checkPastRights(
	t *testing.T, c *kubetest.Cluster, client kubernetes.Interface, as, fleet func(string) *pastReader, at time.Time,
) {
	t.Helper()
	expect.NoError(t, c.Grant(t.Context(), "ann", "red", rbacv1.PolicyRule{
		Verbs:     []string{"get", "list", "watch"},
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
	}))
	ann, eve := as(c.UserConfig("ann").BearerToken), as(c.UserConfig("eve").BearerToken)
	past := func(p *pastReader) int {
		query := url.Values{"at": {at.Format(time.RFC3339Nano)}}
		code, _, _ := p.get("/api/v1/namespaces/red/configmaps", query)
		if below, _, body := fleet(p.token).get("/api/v1/namespaces/red/configmaps", query); below != code {
			t.Logf("%d, and below /fleet %d %s", code, below, body)
			return 0
		}
		return code
	}
	expect.Soon(t, "ann may read the past", func() bool { return past(ann) == http.StatusOK })
	if code, _, _ := ann.get("/api/v1/configmaps", url.Values{"at": {"1s"}}); code != http.StatusForbidden {
		t.Errorf("ann reads all namespaces: %d", code)
	}
	for reader, want := range map[*pastReader]int{ann: http.StatusForbidden, eve: http.StatusOK} {
		if code, _, body := reader.get("/changes", url.Values{"since": {"1h"}}); code != want {
			t.Errorf("the numbers of changes: %d instead of %d, %s", code, want, body)
		}
	}
	expect.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), "red", metav1.DeleteOptions{}))
	finalizeNamespace(t, client, "red")
	expect.Soon(t, "the namespace is deleted", func() bool { return past(ann) == http.StatusForbidden })
	time.Sleep(1100 * time.Millisecond) // the new namespace is created in another second
	createNamespace(t, client, "red")
	expect.Soon(t, "ann may read the new namespace", func() bool {
		code, _, _ := ann.get("/api/v1/namespaces/red/configmaps", nil)
		return code == http.StatusOK
	})
	expect.Soon(t, "the copy has the new namespace", func() bool {
		code, _, _ := eve.get("/api/v1/namespaces/red", nil)
		return code == http.StatusOK
	})
	if code := past(ann); code != http.StatusForbidden {
		t.Errorf("ann reads the past of the deleted namespace: %d", code)
	}
	for _, reader := range []*pastReader{ann, fleet(ann.token)} {
		code, _, body := reader.get("/api/v1/namespaces/red/configmaps", url.Values{"changes": {"1h"}})
		var changes document.ChangeList
		if err := json.Unmarshal(body, &changes); err != nil || code != http.StatusOK || len(changes.Items) > 0 {
			t.Errorf("ann reads the changes of the deleted namespace: %d %.300s", code, body)
		}
	}
	if code := past(eve); code != http.StatusOK {
		t.Errorf("eve reads the past of the deleted namespace: %d", code)
	}
}

func createNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	expect.NoError(t, err)
}

// finalizeNamespace does what the namespace controller does, which does not run.
func finalizeNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	n, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	expect.NoError(t, err)
	n.Spec.Finalizers = nil
	_, err = client.CoreV1().Namespaces().Finalize(t.Context(), n, metav1.UpdateOptions{})
	expect.NoError(t, err)
}
