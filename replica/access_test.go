// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/watershed-project/watershed/fleet"
)

// sees returns a hook for a caller that sees some members.
func sees(caller string, names ...string) func(*http.Request, *Request) (*Access, error) {
	return func(*http.Request, *Request) (*Access, error) {
		return &Access{
			Caller: caller, CanSee: func(m *fleet.Member) bool { return slices.Contains(names, m.Name()) },
		}, nil
	}
}

// hiddenName is the name of the cluster that callers do not see.
const hiddenName = "b-hidden"

// hidden is a state of the cluster that callers do not see. prepare is called before the
// replica starts, and disturb before every request.
type hidden struct {
	prepare func(o *apiServer)
	disturb func(o *apiServer, n int)
}

// hiddenStates has the states in which a cluster could leave a trace.
func hiddenStates() map[string]hidden {
	refuse := func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "refused by "+hiddenName, http.StatusInternalServerError)
		return true
	}
	return map[string]hidden{
		"has more": {prepare: func(o *apiServer) { o.answers(moreTypes) }},
		"changes": {disturb: func(o *apiServer, n int) {
			o.add(fmt.Sprintf("hidden-%d", n), 20+n)
		}},
		"is refused":      {prepare: func(o *apiServer) { _ = o.network.Close() }},
		"is never synced": {prepare: func(o *apiServer) { o.answers(silentList) }},
		"is stale": {disturb: func(o *apiServer, n int) {
			if n == 0 {
				o.answers(refuse)
				o.network.cut()
			}
		}},
	}
}

// moreTypes responds as a cluster with types, documents and objects that no other one has.
func moreTypes(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/apis":
		_, _ = io.WriteString(w,
			`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"hidden.example.com","versions":[{"groupVersion":"hidden.example.com/v1","version":"v1"}],"preferredVersion":{"groupVersion":"hidden.example.com/v1","version":"v1"}}]}`)
	case "/apis/hidden.example.com/v1":
		_, _ = io.WriteString(w,
			`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"hidden.example.com/v1","resources":[{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["get","list","watch"]}]}`)
	case "/apis/hidden.example.com/v1/widgets":
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w,
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
			return true
		case query.Get("watch") != "":
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
		_, _ = io.WriteString(w,
			`{"kind":"WidgetList","apiVersion":"hidden.example.com/v1","metadata":{"resourceVersion":"10"},"items":[]}`)
	case "/version", "/openapi/v2", "/openapi/v3":
		_, _ = io.WriteString(w, `{"hidden":true}`)
	default:
		return false
	}
	return true
}

// silentList responds to everything except lists, for which it takes forever.
func silentList(_ http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/api/v1/configmaps" {
		return false
	}
	<-r.Context().Done()
	return true
}

// surveyed has the paths whose responses could depend on a cluster.
var surveyed = []string{
	"/clusters", "/readyz", "/readyz?verbose", "/healthz", "/livez", "/nothing",
	"/fleet/readyz?verbose", "/fleet/healthz", "/fleet/api", "/fleet/apis", "/fleet/api/v1",
	"/fleet/apis/hidden.example.com", "/fleet/apis/hidden.example.com/v1", "/fleet/nothing",
	"/fleet/version", "/fleet/openapi/v2", "/fleet/openapi/v3", "/fleet/openapi/v3/api/v1",
	"/fleet/openapi/v3/apis/hidden.example.com/v1",
	"/fleet/apis/hidden.example.com/v1/widgets", "/fleet/apis/hidden.example.com/v1/namespaces/shop/widgets/x",
	"/fleet/api/v1/secrets", "/fleet/api/v1/nothings", "/fleet/api/v2/configmaps",
	"/fleet/api/v1/configmaps?watershedRead=consistent",
	"/fleet/api/v1/configmaps", "/fleet/api/v1/configmaps?limit=1", "/fleet/api/v1/configmaps?limit=3",
	"/fleet/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dhidden-1",
	"/fleet/api/v1/configmaps?resourceVersion=0", "/fleet/api/v1/configmaps?resourceVersion=9000000000000000000",
	"/fleet/api/v1/configmaps?labelSelector=app%3Dhidden-1",
	"/fleet/api/v1/configmaps?labelSelector=watershed.dev/cluster%3D" + hiddenName,
	"/fleet/api/v1/configmaps?labelSelector=watershed.dev/cluster!%3Dabsent",
	"/fleet/api/v1/configmaps?labelSelector=watershed.dev/cluster%3Da-seen",
	"/fleet/api/v1/configmaps?labelSelector=watershed.dev/cluster+in+(a-seen," + hiddenName + ")",
	"/fleet/api/v1/namespaces/shop/configmaps/a", "/fleet/api/v1/namespaces/shop/configmaps/only",
	"/fleet/api/v1/namespaces/shop/configmaps/hidden-1", "/fleet/api/v1/namespaces/shop/configmaps/none",
	"/fleet/api/v1/configmaps?watch=1&timeoutSeconds=1",
	"/fleet/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=1&watershedFleet=keyed-by-cluster",
}

// survey sends every request to a replica, and returns the responses.
func survey(w *pipedReplica, disturb func(n int)) []string {
	var all []string
	time.Sleep(10 * time.Second)
	w.origins["a-seen"].add("only", 11)
	for i, path := range surveyed {
		disturb(i)
		time.Sleep(time.Second)
		for _, accept := range []string{
			"application/json", tableAccept,
			"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "application/yaml",
		} {
			code, h, body := w.get(path, "Accept", accept)
			all = append(all, fmt.Sprintf("%s as %s: %d %s %s", path, accept, code, comparable(h), timeless(body)))
		}
	}
	return append(all, surveyWatches(w, disturb)...)
}

// surveyWatches reads watches during which clusters change.
func surveyWatches(w *pipedReplica, disturb func(n int)) []string {
	const watch = "/fleet/api/v1/configmaps?watch=1&allowWatchBookmarks=1&watershedFleet=keyed-by-cluster&timeoutSeconds=150"
	_, _, list := w.get("/fleet/api/v1/configmaps")
	paths := []string{watch, watch + "&sendInitialEvents=1&resourceVersionMatch=NotOlderThan",
		watch + "&resourceVersion=" + versionIn(w.t, list), watch + "&labelSelector=app%3Dseen-1",
		watch + "&labelSelector=watershed.dev/cluster%3D" + hiddenName}
	bodies := make([]string, len(paths))
	var reading sync.WaitGroup
	for i, path := range paths {
		reading.Go(func() {
			code, h, body := w.get(path)
			bodies[i] = fmt.Sprintf("%s: %d %s %s", path[:60], code, comparable(h), timeless(body))
		})
	}
	for i := range 3 {
		time.Sleep(41 * time.Second)
		disturb(1000 + i)
		time.Sleep(time.Millisecond) // the version of a change is its time
		w.origins["a-seen"].add(fmt.Sprintf("seen-%d", i), 100+i)
		time.Sleep(time.Second)
		disturb(2000 + i) // before the next bookmark
	}
	reading.Wait()
	return bodies
}

// versionIn returns the version of a list.
func versionIn(t testing.TB, list string) string {
	t.Helper()
	var l struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(list), &l); err != nil || l.Metadata.ResourceVersion == "" {
		t.Fatalf("not a list: %v: %.200s", err, list)
	}
	return l.Metadata.ResourceVersion
}

// comparable returns headers without the date and the number of clusters that are left out.
func comparable(h http.Header) string {
	h = h.Clone()
	h.Del("Date")
	warnings := slices.DeleteFunc(h["Warning"], func(text string) bool {
		return text == `299 - "1 cluster is left out: you may not read this resource there"` ||
			text == `299 - "1 cluster is left out: you may not read it"`
	})
	h.Del("Warning")
	var b strings.Builder
	_ = h.Write(&b)
	return b.String() + strings.Join(warnings, "\n")
}

var (
	longNumber = regexp.MustCompile(`\d{16,}`)
	tokenText  = regexp.MustCompile(`"?continue"?: ?"?[\w-]{20,}`)
)

// timeless returns a text without what is random in a process: the last bits of versions,
// and the seals of tokens.
func timeless(body string) string {
	body = tokenText.ReplaceAllStringFunc(body, func(text string) string {
		raw, _ := base64.RawURLEncoding.DecodeString(text[strings.LastIndexAny(text, `": `)+1:])
		var token map[string]any
		d := json.NewDecoder(strings.NewReader(string(raw)))
		d.UseNumber()
		if d.Decode(&token) != nil || token["seal"] == nil {
			return text
		}
		delete(token, "seal")
		return fmt.Sprint(token)
	})
	return longNumber.ReplaceAllStringFunc(body, func(text string) string {
		n, _ := strconv.ParseUint(text, 10, 64)
		return strconv.FormatUint(n>>10, 10)
	})
}

// TestAccess_hiddenMemberIsAbsent compares all responses of a fleet with a cluster that the
// caller does not see, in many states, with those of a fleet without the cluster.
func TestAccess_hiddenMemberIsAbsent(t *testing.T) {
	hook := sees("alice", "a-seen", "c-seen")
	openAPI := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/version" && r.URL.Path != "/openapi/v2" && r.URL.Path != "/openapi/v3" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"seen":true}`)
		return true
	}
	var without []string
	inMemory(t, []string{"a-seen", "c-seen"}, func(w *pipedReplica) {
		w.options.Authorize = hook
		w.origins["a-seen"].answers(openAPI)
	}, func(_ *testing.T, w *pipedReplica) { without = survey(w, func(int) {}) })
	if all := strings.Join(without, "\n"); strings.Contains(all, "left out: you") ||
		!strings.Contains(all, `"seen":true`) || !strings.Contains(all, "c-seen") || !strings.Contains(all, "seen-2") {
		t.Fatalf("the fleet without the cluster: %s", all)
	}
	for name, state := range hiddenStates() {
		t.Run(name, func(t *testing.T) {
			inMemory(t, []string{"a-seen", hiddenName, "c-seen"}, func(w *pipedReplica) {
				w.options.Authorize = hook
				w.origins["a-seen"].answers(openAPI)
				if state.prepare != nil {
					state.prepare(w.origins[hiddenName])
				}
			}, func(t *testing.T, w *pipedReplica) {
				with := survey(w, func(i int) {
					if state.disturb != nil {
						state.disturb(w.origins[hiddenName], i)
					}
				})
				for i := range with {
					// The readiness of the process is open to probes, and awaits all clusters.
					awaited := name == "is never synced" && strings.Contains(with[i], "/readyz")
					if with[i] != without[i] && !awaited {
						t.Errorf("a hidden cluster that %s shows: %s", name, cmp.Diff(without[i], with[i]))
					}
				}
				if _, h, _ := w.get("/fleet/api/v1/configmaps"); !slices.Contains(h["Warning"],
					`299 - "1 cluster is left out: you may not read this resource there"`) {
					t.Errorf("the number is missing: %q", h["Warning"])
				}
			})
		})
	}
}
