// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// loadVariable has a load in JSON. It makes the test binary serve the clusters of the load,
// so that their memory is not that of the test.
const loadVariable = "WATERSHED_LOAD"

// loadGroup is the group of the resources of a load.
const loadGroup = "loads.example.com"

// load is a set of clusters. The same load has the same objects, and changes at random.
type load struct {
	Seed     uint64
	Limit    int // MiB
	Fits     bool
	Clusters []loadCluster
	// Churn is how many bytes of objects are changed in a second.
	Churn int
}

// loadCluster are the resources of a cluster. Each cluster has beats too, which are small: one
// of them changes, and one is replaced by a new one, in every second.
type loadCluster struct{ Resources []loadResource }

// loadResource has a number of objects of a size in bytes. Plain ones are easily compressed.
type loadResource struct {
	Name        string
	Count, Size int
	Plain       bool
}

// String returns the load on one line.
func (l *load) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, limit %d MiB, fits %t, churn %d KB/s:", l.Seed, l.Limit, l.Fits, l.Churn>>10)
	for i, c := range l.Clusters {
		fmt.Fprintf(&b, " cluster %d:", i)
		for _, r := range c.Resources {
			fmt.Fprintf(&b, " %s %dx%d plain=%t", r.Name, r.Count, r.Size, r.Plain)
		}
	}
	return b.String()
}

// beats is the resource that is small in every cluster.
var beats = loadResource{Name: "beats", Count: 10, Size: 1 << 10}

// serveLoad serves the clusters of a load until the standard input ends. It prints their
// addresses, one on each line.
func serveLoad(text string) error {
	var l load
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for i, c := range l.Clusters {
		s := &loadServer{number: i, load: &l, resources: map[string]*loadState{}}
		for _, r := range append(c.Resources, beats) {
			s.resources[r.Name] = s.newState(r)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{
			Handler: s, ReadHeaderTimeout: patience, BaseContext: func(net.Listener) context.Context { return ctx },
		}
		running.Go(func() { _ = server.Serve(listener) })
		defer server.Close()
		running.Go(func() { s.change(ctx, l.Churn/len(l.Clusters)) })
		fmt.Fprintln(os.Stdout, listener.Addr())
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// loadServer is the API server of one cluster.
type loadServer struct {
	number    int
	load      *load
	resources map[string]*loadState

	// mu guards version, and the states.
	mu      sync.Mutex
	version uint64
	// paused means that nothing changes.
	paused bool
}

// loadState is the state of a resource. An object is its version: its content follows from
// that.
type loadState struct {
	loadResource
	objects map[int]uint64
	next    int // the number of the next object
	past    []loadChange
	changed chan struct{}
	lists   int
}

// loadChange is a change, as watches send it.
type loadChange struct {
	typ     string
	number  int
	version uint64
}

func (s *loadServer) newState(r loadResource) *loadState {
	x := &loadState{loadResource: r, objects: map[int]uint64{}, changed: make(chan struct{})}
	for ; x.next < r.Count; x.next++ {
		s.version++
		x.objects[x.next] = s.version
	}
	return x
}

// change changes objects of so many bytes in a second, and the beats.
func (s *loadServer) change(ctx context.Context, bytes int) {
	random := rand.New(rand.NewPCG(s.load.Seed, uint64(s.number)))
	const tick = 100 * time.Millisecond
	due := 0
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(tick):
		}
		s.mu.Lock()
		if !s.paused {
			if n%10 == 0 {
				s.replaceLocked(s.resources[beats.Name])
			}
			due += bytes / int(time.Second/tick)
			for names := s.load.Clusters[s.number].Resources; due > 0; {
				x := s.resources[names[random.IntN(len(names))].Name]
				if x.Size > max(due, 1<<20) {
					break
				}
				due -= x.Size
				if random.IntN(10) == 0 {
					s.replaceLocked(x)
				} else {
					s.touchLocked(x, random.IntN(x.next))
				}
			}
		}
		s.mu.Unlock()
	}
}

// touchLocked changes an object, if it exists.
func (s *loadServer) touchLocked(x *loadState, number int) {
	if x.objects[number] != 0 {
		s.noteLocked(x, "MODIFIED", number)
	}
}

// replaceLocked deletes the oldest object and creates another one.
func (s *loadServer) replaceLocked(x *loadState) {
	s.noteLocked(x, "DELETED", x.next-x.Count)
	s.noteLocked(x, "ADDED", x.next)
	x.next++
}

func (s *loadServer) noteLocked(x *loadState, typ string, number int) {
	s.version++
	x.objects[number] = s.version
	if typ == "DELETED" {
		delete(x.objects, number)
	}
	x.past = append(x.past, loadChange{typ, number, s.version})
	close(x.changed)
	x.changed = make(chan struct{})
}

// ServeHTTP answers as an API server.
func (s *loadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	base := "/apis/" + loadGroup + "/v1"
	name := strings.TrimPrefix(r.URL.Path, base+"/")
	switch x := s.resources[name]; {
	case r.Method == http.MethodPost: // a review
		var review map[string]any
		_ = json.NewDecoder(r.Body).Decode(&review) // a bad review is answered as an empty one
		if review == nil {
			review = map[string]any{}
		}
		review["status"] = map[string]any{"allowed": true}
		respond(w, review)
	case r.URL.Path == "/state":
		s.state(w, r)
	case r.URL.Path == "/api":
		respond(w, &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/api/v1":
		respond(w, &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1"})
	case r.URL.Path == "/apis":
		v := metav1.GroupVersionForDiscovery{GroupVersion: loadGroup + "/v1", Version: "v1"}
		respond(w, &metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{
				{Name: loadGroup, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v},
			},
		})
	case r.URL.Path == base:
		list := &metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList"},
			GroupVersion: loadGroup + "/v1",
		}
		for name := range s.resources {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: name, SingularName: name, Kind: kindOf(name), Verbs: metav1.Verbs{"get", "list", "watch"},
			})
		}
		respond(w, list)
	case x != nil && r.URL.Query().Get("watch") != "":
		s.watch(w, r, x)
	case x != nil:
		s.list(w, r, x)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		// the client may be gone
		_, _ = io.WriteString(w,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
}

func kindOf(resource string) string { return strings.ToUpper(resource[:1]) + resource[1:] }

func respond(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// clusterState is what a cluster reports to the test: the version of each object and the number
// of lists, by resource.
type clusterState struct {
	Objects map[string]map[string]string
	Lists   map[string]int
}

// state reports the state. With pause=true nothing changes from then on.
func (s *loadServer) state(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = r.URL.Query().Get("pause") == "true"
	is := clusterState{map[string]map[string]string{}, map[string]int{}}
	for name, x := range s.resources {
		is.Lists[name] = x.lists
		is.Objects[name] = map[string]string{}
		for number, version := range x.objects {
			is.Objects[name][nameOf(number)] = strconv.FormatUint(version, 10)
		}
	}
	respond(w, &is)
}

func nameOf(number int) string { return fmt.Sprintf("o%07d", number) }

// snapshot returns the objects of a resource in the order of their names, and the version.
func (s *loadServer) snapshot(x *loadState) (numbers []int, versions []uint64, at uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number := x.next - x.Count; number < x.next; number++ {
		numbers, versions = append(numbers, number), append(versions, x.objects[number])
	}
	return numbers, versions, s.version
}

// list sends all objects, or one and the number of the others.
func (s *loadServer) list(w http.ResponseWriter, r *http.Request, x *loadState) {
	numbers, versions, at := s.snapshot(x)
	remaining := ""
	if r.URL.Query().Get("limit") == "1" {
		remaining = fmt.Sprintf(`,"remainingItemCount":%d,"continue":"more"`, len(numbers)-1)
		numbers = numbers[:1]
	} else {
		s.count(x)
	}
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(w, 64<<10)
	defer out.Flush()
	fmt.Fprintf(out, `{"kind":"%sList","apiVersion":"%s/v1","metadata":{"resourceVersion":"%d"%s},"items":[`,
		kindOf(x.Name), loadGroup, at, remaining)
	for i, number := range numbers {
		if i > 0 {
			_ = out.WriteByte(',') // the client may be gone
		}
		if _, err := out.Write(s.object(x, number, versions[i])); err != nil {
			return
		}
	}
	_, _ = out.WriteString("]}")
}

func (s *loadServer) count(x *loadState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.lists++
}

// watch sends the changes after a version, or all objects and the changes after that.
func (s *loadServer) watch(w http.ResponseWriter, r *http.Request, x *loadState) {
	q := r.URL.Query()
	after, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64) // 0 if absent: from the start
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(max(seconds, 60))*time.Second)
	defer cancel()
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(w, 64<<10)
	send := func(typ string, object []byte) bool {
		_, err := fmt.Fprintf(out, "{\"type\":%q,\"object\":%s}\n", typ, object)
		return err == nil && ctx.Err() == nil
	}
	if q.Get("sendInitialEvents") == "true" {
		s.count(x)
		numbers, versions, at := s.snapshot(x)
		for i, number := range numbers {
			if !send("ADDED", s.object(x, number, versions[i])) {
				return
			}
		}
		after = at
		send("BOOKMARK", fmt.Appendf(nil,
			`{"kind":%q,"apiVersion":"%s/v1","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}`, kindOf(x.Name), loadGroup, at))
	}
	for {
		s.mu.Lock()
		past, changed := x.past, x.changed
		s.mu.Unlock()
		for _, c := range past {
			if c.version > after && !send(c.typ, s.object(x, c.number, c.version)) {
				return
			}
			after = max(after, c.version)
		}
		_ = out.Flush() // the client may be gone
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// object returns an object of a resource at a version.
func (s *loadServer) object(x *loadState, number int, version uint64) []byte {
	b := make([]byte, 0, x.Size+512)
	b = fmt.Appendf(b,
		`{"kind":%q,"apiVersion":"%s/v1","metadata":{"name":%q,"uid":"%08d-0000-0000-0000-%012d","resourceVersion":"%d"},"data":"`, kindOf(x.Name), loadGroup, nameOf(number), s.number, number, version)
	from := len(b)
	random := rand.NewChaCha8([32]byte{
		byte(number), byte(number >> 8), byte(number >> 16), byte(version), byte(version >> 8), byte(version >> 16),
		byte(s.number),
	})
	var part [48]byte
	for len(b)-from < x.Size {
		if !x.Plain || len(b) == from {
			_, _ = random.Read(part[:]) // it does not fail
		}
		b = base64.StdEncoding.AppendEncode(b, part[:])
	}
	return append(b, `"}`...)
}
