// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// startInformers starts client-go's reflectors of the fleet, of a real cluster and of simulated ones.
func (g *replicaGroup) startInformers(ctx context.Context, running *sync.WaitGroup) (all []*followed) {
	pods := g.servers.Cluster(0).Pod(0).Namespace // which has pods that change
	for _, of := range []struct {
		path, namespace string
		resource        schema.GroupVersionResource
	}{
		{"/fleet", pods, podResource},
		{"/fleet", groupNamespace, configMapResource},
		{"/clusters/direct", groupNamespace, configMapResource},
		{"/clusters/second", groupNamespace, configMapResource},
		{"/clusters/" + g.servers.Cluster(0).Name(), pods, podResource},
		{"/clusters/" + g.servers.Cluster(1).Name(), pods, podResource},
	} {
		config := rest.CopyConfig(g.config)
		config.Host += of.path
		config.Dial = (&net.Dialer{Timeout: time.Second}).DialContext // its own transport
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return keyedByCluster{next} })
		client, err := dynamic.NewForConfig(config)
		expect.NoError(g.t, err)
		f := &followed{
			name:  fmt.Sprintf("informer of %s in %q of %s", of.resource.Resource, of.namespace, of.path),
			Store: cache.NewStore(keyInFleet), client: client.Resource(of.resource).Namespace(of.namespace),
			ofFleet: of.path == "/fleet",
		}
		all = append(all, f)
		running.Go(func() { f.run(ctx) })
	}
	return all
}

// keyInFleet returns the key of an object with its cluster.
func keyInFleet(o any) (string, error) {
	key, err := cache.MetaNamespaceKeyFunc(o)
	if u, ok := o.(*unstructured.Unstructured); ok {
		key = u.GetAnnotations()[clusterAnnotation] + "/" + key
	}
	return key, err
}

// keyedByCluster asks for objects of the fleet that are told apart by their cluster.
type keyedByCluster struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (k keyedByCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Watershed-Fleet", "keyed-by-cluster")
	return k.next.RoundTrip(r)
}

// pageReader lists page by page, and moves between the replicas at random while it does.
type pageReader struct {
	fleetClient
	path  string
	moves func() bool
}

// paged is a list that was read page by page.
type paged struct {
	Items    []metav1.PartialObjectMetadata
	versions map[string]bool
	by       map[*program.Process]bool
	warned   bool
}

// identities returns the objects of the fleet with their versions.
func (p *paged) identities() (all []string) {
	for i := range p.Items {
		o := &p.Items[i]
		all = append(all, o.Annotations[clusterAnnotation]+"/"+o.Namespace+"/"+o.Name+"@"+o.ResourceVersion)
	}
	return all
}

// errExpired means that a continue token got 410.
var errExpired = errors.New("the continue token is expired")

// read reads a list.
func (r *pageReader) read(ctx context.Context) (*paged, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	list, token := &paged{versions: map[string]bool{}, by: map[*program.Process]bool{}}, ""
	for {
		if r.moves != nil && r.moves() {
			r.move()
		}
		resp, by, err := r.get(ctx, r.path, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
			url.Values{"limit": {"500"}, "continue": {token}})
		if err != nil {
			return nil, err
		}
		var page metav1.PartialObjectMetadataList
		err = json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusGone && token != "":
			return nil, errExpired
		case resp.StatusCode != http.StatusOK:
			return nil, fmt.Errorf("page of %s is %s", r.path, resp.Status)
		case err != nil:
			return nil, err
		}
		list.Items = append(list.Items, page.Items...)
		list.versions[page.ResourceVersion], list.by[by] = true, true
		list.warned = list.warned || len(resp.Header.Values("Warning")) > 0
		if token = page.Continue; token == "" {
			return list, nil
		}
	}
}

// pageResults counts the results of paged lists.
type pageResults struct {
	ledger                   *ledger
	read, expired, failed    atomic.Int64
	across, expiredInCluster atomic.Int64
}

func (p *pageResults) String() string {
	return fmt.Sprintf("%d read (%d of them through both replicas), %d expired at the other replica, %d of them of "+
		"one cluster, %d failed", p.read.Load(), p.across.Load(), p.expired.Load(), p.expiredInCluster.Load(),
		p.failed.Load())
}

// lacks returns what did not happen.
func (p *pageResults) lacks() (all []string) {
	if p.read.Load() == 0 {
		all = append(all, "no paged list was read")
	}
	if p.across.Load() == 0 {
		all = append(all, "no paged list was read through both replicas")
	}
	return all
}

// startPages lists the pods of the fleet and of simulated clusters page by page. Each list must have each
// pod that does not change once, and all pages the same version.
func (g *replicaGroup) startPages(ctx context.Context, running *sync.WaitGroup) *pageResults {
	results := &pageResults{ledger: g.ledger}
	stable := make([]string, 0, simulatedPods-changedPods)
	for n := changedPods; n < simulatedPods; n++ {
		pod := g.servers.Cluster(0).Pod(n) // all clusters have the same names
		stable = append(stable, pod.Namespace+"/"+pod.Name)
	}
	for _, of := range []string{"", "", g.servers.Cluster(2).Name(), g.servers.Cluster(3).Name()} {
		client, err := newFleetClient(g.balancer, g.config)
		expect.NoError(g.t, err)
		rng := g.random()
		r := &pageReader{fleetClient: client, path: "/fleet/api/v1/pods"}
		r.moves = func() bool { return rng.IntN(30) == 0 }
		if of != "" {
			r.path = "/clusters/" + of + "/api/v1/pods"
			r.moves = func() bool { return rng.IntN(2) == 0 }
		}
		running.Go(func() {
			for ctx.Err() == nil {
				list, err := r.read(ctx)
				switch {
				case errors.Is(err, errExpired):
					results.expired.Add(1)
					if of != "" {
						results.expiredInCluster.Add(1)
					}
				case err != nil:
					results.failed.Add(1)
					r.move()
				default:
					results.read.Add(1)
					if len(list.by) > 1 {
						results.across.Add(1)
					}
					results.check(r.path, of, list, stable)
				}
				wait(ctx, 2*time.Second) // a period of lists
			}
		})
	}
	return results
}

// check complains of a list that lacks an object or has one twice, or whose pages have several versions. A
// list of the fleet may lack clusters.
func (p *pageResults) check(path, of string, list *paged, stable []string) {
	if len(list.versions) != 1 {
		p.ledger.complain("the pages of a list of %s have the versions %v", path, list.versions)
	}
	clusters := map[string]map[string]bool{}
	if of != "" {
		clusters[of] = map[string]bool{}
	}
	for i := range list.Items {
		o := &list.Items[i]
		in := of
		if in == "" {
			in = o.Annotations[clusterAnnotation]
		}
		if clusters[in] == nil {
			clusters[in] = map[string]bool{}
		}
		name := o.Namespace + "/" + o.Name
		if clusters[in][name] {
			p.ledger.complain("a list of %s has the pod %s of %s twice", path, name, in)
		}
		clusters[in][name] = true
	}
	for in, names := range clusters {
		for _, name := range stable {
			if !names[name] {
				p.ledger.complain("a list of %s has %d pods of %s, but not %s; warnings: %t", path, len(names), in,
					name, list.warned)
				return
			}
		}
	}
}

// groupWriters is how many users write and read.
const groupWriters = 4

func writerName(i int) string { return fmt.Sprintf("writer-%d", i) }

const configMapsOfCluster = "/api/v1/namespaces/" + groupNamespace + "/configmaps"

// writers are users that write through one replica and read through either.
type writers struct {
	ledger *ledger
	// calm is set while there is no fault, and calmWritten and calmUnconfirmed count these writes.
	calm                              atomic.Bool
	calmWritten, calmUnconfirmed      atomic.Int64
	written, failed, unconfirmed      atomic.Int64
	reads, copied, warned, stale, old atomic.Int64
}

func (w *writers) String() string {
	return fmt.Sprintf("%d writes, of which %d had a warning (%d of %d without a fault), %d failed; %d reads, %d of "+
		"them from the copy, %d with a warning, %d older than the write with a warning, %d without", w.written.Load(),
		w.unconfirmed.Load(), w.calmUnconfirmed.Load(), w.calmWritten.Load(), w.failed.Load(), w.reads.Load(),
		w.copied.Load(), w.warned.Load(), w.old.Load(), w.stale.Load())
}

// lacks returns what did not happen.
func (w *writers) lacks() (all []string) {
	if w.reads.Load() == w.warned.Load() {
		all = append(all, "no read was without a warning")
	}
	if w.copied.Load() == 0 {
		all = append(all, "no read came from the copy")
	}
	return all
}

// startWriters starts users that count in a config map of each real cluster, through the load balancer, and
// read what they have written over another connection.
func (g *replicaGroup) startWriters(ctx context.Context, running *sync.WaitGroup) *writers {
	w := &writers{ledger: g.ledger}
	for i := range groupWriters {
		cluster := i % len(g.real)
		config := rest.CopyConfig(g.config)
		config.Host += "/clusters/" + g.real[cluster].Name() + configMapsOfCluster
		config.BearerToken = g.real[cluster].UserConfig(writerName(i)).BearerToken
		_, err := g.clients[cluster].CoreV1().ConfigMaps(groupNamespace).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: writerName(i)}}, metav1.CreateOptions{})
		expect.NoError(g.t, err)
		rng := g.random()
		running.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				w.count(ctx, config, writerName(i), n, rng)
				wait(ctx, 300*time.Millisecond) // a period of writes
			}
		})
	}
	return w
}

// count writes a number, and reads it.
func (w *writers) count(ctx context.Context, config *rest.Config, name string, n int, rng *rand.Rand) {
	calm := w.calm.Load()
	code, header, _, err := send(ctx, config, http.MethodPatch, "/"+name, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n))
	if err != nil || code != http.StatusOK {
		w.failed.Add(1)
		return
	}
	w.written.Add(1)
	warnings := header.Values("Warning")
	calm = calm && w.calm.Load()
	if calm {
		w.calmWritten.Add(1)
	}
	if len(warnings) > 0 {
		w.unconfirmed.Add(1)
		if calm {
			w.calmUnconfirmed.Add(1)
		}
	}
	for range 2 {
		path := "/" + name
		if rng.IntN(2) == 0 {
			path = "?fieldSelector=metadata.name%3D" + name
		}
		code, header, body, err := send(ctx, config, http.MethodGet, path, nil)
		if err != nil || code != http.StatusOK && code != http.StatusNotFound {
			continue
		}
		w.reads.Add(1)
		if header.Get("Watershed-Source") == "" {
			w.copied.Add(1)
		}
		own := header.Values("Warning")
		if len(own) > 0 {
			w.warned.Add(1)
		}
		var one struct {
			Data  struct{ N string }
			Items []struct{ Data struct{ N string } }
		}
		_ = json.Unmarshal(body, &one)
		for _, item := range one.Items {
			one.Data.N = item.Data.N
		}
		got, _ := strconv.Atoi(one.Data.N)
		switch {
		case got >= n:
		case len(own)+len(warnings) > 0:
			w.old.Add(1)
		default:
			w.stale.Add(1)
			w.ledger.complain("%s has written %d to %s, and reads %d without a warning: %d %v %.300s", name, n,
				config.Host, got, code, header, body)
		}
	}
}

// send sends a request over a connection of its own.
func send(ctx context.Context, config *rest.Config, method, path string, body []byte) (
	code int, header http.Header, answer []byte, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{Timeout: time.Second}).DialContext // its own transport
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, nil, nil, err
	}
	defer closeIdle(client)
	host, query, _ := strings.Cut(config.Host+path, "?")
	r, err := http.NewRequestWithContext(ctx, method, host+"?"+query, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	r.Header.Set("Accept", jsonType)
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, answer, err
}

// ignoreNotFound returns an error unless it means that an object does not exist.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
