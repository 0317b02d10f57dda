// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// podWitness builds the pods of the fleet from a watch.
type podWitness struct {
	c      *configured
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	pods    map[string]string // versions, by cluster, namespace and name
	leaving map[string]bool
	// events counts the events, deleted those about deletions, and wrong has the deletions in
	// clusters that do not leave.
	events, deleted int
	wrong           []string
}

type placedPod struct {
	Metadata struct {
		Name, Namespace, ResourceVersion string
		Annotations                      map[string]string
	}
}

func (p *placedPod) cluster() string { return p.Metadata.Annotations["watershed.dev/cluster"] }

func (p *placedPod) key() string {
	return p.cluster() + " " + p.Metadata.Namespace + "/" + p.Metadata.Name
}

// watchPods opens a watch of the pods of all clusters.
func watchPods(c *configured) *podWitness {
	c.t.Helper()
	w := &podWitness{c: c, ended: make(chan struct{}), pods: map[string]string{}, leaving: map[string]bool{}}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		c.url("/fleet/api/v1/pods?watch=1&resourceVersion=0&watershedFleet=keyed-by-cluster"), http.NoBody)
	expect.NoError(c.t, err)
	r.Header.Set("Authorization", "Bearer "+c.owner())
	response, err := (&http.Client{Transport: c.client.Transport}).Do(r)
	expect.NoError(c.t, err)
	expect.Equal(c.t, response.StatusCode, http.StatusOK)
	go func() {
		defer close(w.ended)
		defer response.Body.Close()
		scanner := bufio.NewScanner(response.Body)
		scanner.Buffer(nil, 10<<20)
		for scanner.Scan() {
			w.see(scanner.Bytes())
		}
	}()
	c.t.Cleanup(w.end)
	return w
}

// see applies an event.
func (w *podWitness) see(line []byte) {
	var event struct {
		Type   string
		Object placedPod
	}
	err := json.Unmarshal(line, &event)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	switch o := &event.Object; {
	case err != nil, event.Type == "ERROR":
		w.wrong = append(w.wrong, fmt.Sprintf("%v %s", err, line))
	case event.Type == "DELETED":
		w.deleted++
		delete(w.pods, o.key())
		if !w.leaving[o.cluster()] {
			w.wrong = append(w.wrong, "DELETED "+o.key())
		}
	case event.Type != "BOOKMARK":
		w.pods[o.key()] = o.Metadata.ResourceVersion
	}
}

// leaves records clusters whose objects may be deleted. Without any, none may be.
func (w *podWitness) leaves(clusters ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(clusters) == 0 {
		clear(w.leaving)
	}
	for _, name := range clusters {
		w.leaving[name] = true
	}
}

// end ends the watch.
func (w *podWitness) end() {
	w.cancel()
	<-w.ended
}

// converge waits until the lists and the watch of the fleet have the pods of the clusters, and fails
// if the watch has received a deletion that was none.
func (w *sourcesWorld) converge(round int) {
	w.t.Helper()
	expect.Eventually(w.t, time.Minute, func() error {
		want := map[string]string{}
		for name, p := range w.want {
			maps.Copy(want, w.podsOf(p.at.URL+"/api/v1/pods", "replica", name))
		}
		listed := w.podsOf(w.c.url("/fleet/api/v1/pods"), w.c.owner(), "")
		w.witness.mu.Lock()
		defer w.witness.mu.Unlock()
		switch {
		case len(w.witness.wrong) > 0:
			w.t.Errorf("round %d: %d wrong events, the first is %s", round, len(w.witness.wrong), w.witness.wrong[0])
			return nil
		case !maps.Equal(listed, want):
			return fmt.Errorf("round %d: the list has %d pods, the clusters have %d; %s; log:\n%s", round, len(listed),
				len(want), w.c.names(), w.c.log)
		case !maps.Equal(w.witness.pods, want):
			return fmt.Errorf("round %d: the watch has %d pods, the clusters have %d", round, len(w.witness.pods),
				len(want))
		}
		return nil
	})
}

// podsOf returns the versions of the pods of a list. Name is the cluster's name if the list is of
// one cluster.
func (w *sourcesWorld) podsOf(url, token, name string) map[string]string {
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, http.NoBody)
	expect.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Watershed-Fleet", "keyed-by-cluster")
	response, err := w.c.client.Do(r)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	var list struct{ Items []placedPod }
	if json.NewDecoder(response.Body).Decode(&list) != nil {
		return nil
	}
	all := map[string]string{}
	for i := range list.Items {
		p := &list.Items[i]
		if name != "" {
			p.Metadata.Annotations = map[string]string{"watershed.dev/cluster": name}
		}
		all[p.key()] = p.Metadata.ResourceVersion
	}
	return all
}
