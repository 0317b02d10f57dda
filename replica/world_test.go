// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulatedReplica is a replica of simulated clusters.
type simulatedReplica struct {
	t        testing.TB
	clusters *simulated.Server
	client   *http.Client
	url      string
	server   *replica.Server
}

func newSimulatedReplica(t testing.TB, clusters, pods int, opts *replica.Options) *simulatedReplica {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	s, err := simulated.New(&simulated.Options{Clusters: clusters, Pods: pods})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var entries []fleet.Entry
	for i := range clusters {
		entries = append(entries, fleet.Entry{Name: s.Cluster(i).Name(), Config: s.Cluster(i).Config()})
	}
	w, f, _ := serve(t, s, entries, opts)
	synced, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := f.WaitForSync(synced); err != nil {
		t.Fatal(err)
	}
	return w
}

// serve runs a replica of clusters. end ends the run of the fleet, before that of the
// replica.
func serve(
	t testing.TB, s *simulated.Server, entries []fleet.Entry, opts *replica.Options,
) (w *simulatedReplica, f *fleet.Fleet, end func()) {
	t.Helper()
	return serveStored(t, s, entries, nil, opts)
}

// serveStored is serve with files, unless they are nil.
func serveStored(
	t testing.TB, s *simulated.Server, entries []fleet.Entry, files *disk.Directory, opts *replica.Options,
) (w *simulatedReplica, f *fleet.Fleet, end func()) {
	t.Helper()
	return serveResources(t, s, entries, files, []string{"pods"}, opts)
}

// serveResources is serveStored of some resources.
func serveResources(
	t testing.TB, s *simulated.Server, entries []fleet.Entry, files *disk.Directory, resources []string,
	opts *replica.Options,
) (w *simulatedReplica, f *fleet.Fleet, end func()) {
	t.Helper()
	return serveFleet(t, s, entries, &fleet.Options{Resources: resources, Disk: files}, opts)
}

// serveFleet runs a replica of a fleet with some options.
func serveFleet(
	t testing.TB, s *simulated.Server, entries []fleet.Entry, mirrored *fleet.Options, opts *replica.Options,
) (w *simulatedReplica, f *fleet.Fleet, end func()) {
	t.Helper()
	clusters, err := directory.NewStatic(entries...)
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	mirrored.History, mirrored.Logger = 64<<20, logger
	f, err = fleet.New(clusters, mirrored)
	if err != nil {
		t.Fatal(err)
	}
	if opts == nil {
		opts = &replica.Options{}
	}
	opts.Logger = logger
	server, err := replica.New(f, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reading, end := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- f.Run(reading) }()
	go func() { ended <- server.Run(ctx) }()
	h := httptest.NewUnstartedServer(server)
	_ = h.Listener.Close()
	if h.Listener, err = replica.ListenConfig().Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	h.EnableHTTP2 = true
	h.StartTLS()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return &simulatedReplica{t: t, clusters: s, client: h.Client(), url: h.URL, server: server}, f, end
}

// pods returns the path of a cluster's pods.
func (w *simulatedReplica) pods(cluster int) string {
	return "/clusters/" + w.clusters.Cluster(cluster).Name() + "/api/v1/pods"
}

// get sends a request. The caller closes the body.
func (w *simulatedReplica) get(ctx context.Context, path string, header ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return w.client.Do(r)
}

// read returns the whole response, which must be successful.
func (w *simulatedReplica) read(path string, header ...string) ([]byte, http.Header) {
	w.t.Helper()
	resp, err := w.get(w.t.Context(), path, header...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("GET %s: %s %v: %.300s", path, resp.Status, err, body)
	}
	return body, resp.Header
}

// truth returns the pods of a cluster, by key.
func (w *simulatedReplica) truth(cluster int) map[string]*corev1.Pod {
	c := w.clusters.Cluster(cluster)
	all := map[string]*corev1.Pod{}
	for i := range c.Pods() {
		if p := c.Pod(i); p != nil {
			all[p.Namespace+"/"+p.Name] = p
		}
	}
	return all
}

// decodeList reads a list in JSON or protobuf.
func decodeList(body []byte) (*corev1.PodList, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	list, ok := obj.(*corev1.PodList)
	if !ok {
		return nil, fmt.Errorf("got %T", obj)
	}
	return list, nil
}

// events reads a watch in JSON or protobuf, and calls a function for every event until
// that returns an error or the watch ends.
func events(body io.Reader, protobuf bool, each func(t string, pod *corev1.Pod) error) error {
	next := jsonEvents(body)
	if protobuf {
		next = protoEvents(body)
	}
	for {
		t, raw, err := next()
		if err != nil {
			return err
		}
		if t == "ERROR" {
			return fmt.Errorf("the event is %s", raw)
		}
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		if err := each(t, obj.(*corev1.Pod)); err != nil {
			return err
		}
	}
}

func jsonEvents(body io.Reader) func() (string, []byte, error) {
	d := json.NewDecoder(body)
	return func() (string, []byte, error) {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		err := d.Decode(&e)
		return e.Type, e.Object, err
	}
}

func protoEvents(body io.Reader) func() (string, []byte, error) {
	return func() (string, []byte, error) {
		var n [4]byte
		if _, err := io.ReadFull(body, n[:]); err != nil {
			return "", nil, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(n[:]))
		if _, err := io.ReadFull(body, frame); err != nil {
			return "", nil, err
		}
		var e metav1.WatchEvent
		err := e.Unmarshal(frame)
		return e.Type, e.Object.Raw, err
	}
}
