// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func uitoa(n uint64) string { return strconv.FormatUint(n, 10) }

// reader keeps a copy by list and watch, like an informer.
type reader struct {
	replica  *simulatedReplica
	cluster  int
	rng      *rand.Rand
	header   []string
	protobuf bool
	stream   bool // it reads its first state as initial events
	selector string

	version string
	pods    map[string]*corev1.Pod
	lists   int
	resumes int
}

var errEnough = errors.New("read enough")

// follow reads until its copy has a version.
func (r *reader) follow(ctx context.Context, until func() uint64) error {
	for ctx.Err() == nil {
		if r.version == "" && !r.stream {
			if err := r.list(ctx); err != nil {
				return err
			}
		}
		err := r.watch(ctx, until())
		switch {
		case errors.Is(err, errEnough) && r.atLeast(until()):
			return nil
		case err != nil && strings.Contains(err.Error(), "Expired"):
			r.version, r.pods = "", nil
		case err != nil && !errors.Is(err, errEnough) && !errors.Is(err, io.EOF):
			return err
		default:
			r.resumes++
		}
	}
	return ctx.Err()
}

func (r *reader) atLeast(version uint64) bool {
	v, _ := strconv.ParseUint(r.version, 10, 64)
	return v >= version
}

func (r *reader) list(ctx context.Context) error {
	path := r.replica.pods(r.cluster) + "?labelSelector=" + url.QueryEscape(r.selector)
	resp, err := r.replica.get(ctx, path, r.header...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	list, err := decodeList(body)
	if err != nil {
		return fmt.Errorf("%w: %.300s", err, body)
	}
	r.lists++
	r.version, r.pods = list.ResourceVersion, map[string]*corev1.Pod{}
	for i := range list.Items {
		r.pods[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
	}
	return nil
}

// watch reads a watch for a while, or until it has a version.
func (r *reader) watch(ctx context.Context, until uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := "?watch=1&allowWatchBookmarks=true&timeoutSeconds=4&labelSelector=" + url.QueryEscape(r.selector)
	if r.version != "" {
		query += "&resourceVersion=" + r.version
	} else {
		query += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		r.pods = map[string]*corev1.Pod{}
		r.lists++
	}
	resp, err := r.replica.get(ctx, r.replica.pods(r.cluster)+query, r.header...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	left, initial := 50+r.rng.IntN(2000), r.version == ""
	return events(resp.Body, r.protobuf, func(t string, pod *corev1.Pod) error {
		if err := r.take(t, pod, initial); err != nil {
			return err
		}
		if initial && pod.Annotations["k8s.io/initial-events-end"] == "true" {
			initial = false
		}
		if !initial {
			r.version = pod.ResourceVersion
		}
		if left--; !initial && (left < 0 || r.atLeast(until)) {
			return errEnough
		}
		return nil
	})
}

// take applies an event to the copy, if it is a valid successor of the current state.
func (r *reader) take(t string, pod *corev1.Pod, initial bool) error {
	key := pod.Namespace + "/" + pod.Name
	known := r.pods[key]
	if last, _ := strconv.ParseUint(r.version, 10, 64); !initial {
		if v, _ := strconv.ParseUint(pod.ResourceVersion, 10, 64); v < last {
			return fmt.Errorf("%s %s is of version %d, after %d", t, key, v, last)
		}
	}
	switch {
	case t == "BOOKMARK":
	case t == "ADDED" && known == nil, t == "MODIFIED" && known != nil:
		r.pods[key] = pod
	case t == "DELETED" && known != nil:
		delete(r.pods, key)
	case known != nil && known.ResourceVersion == pod.ResourceVersion, t == "DELETED":
		// Changes that a list found share a version, so they may be sent again.
	default:
		return fmt.Errorf("%s %s, which is there: %v", t, key, known != nil)
	}
	return nil
}

// TestWatch_readersKeepCopies runs readers of all kinds on two clusters that change, lose
// their connections and compact their history. The readers stop and resume at random, and
// in the end have the state of the clusters.
func TestWatch_readersKeepCopies(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newSimulatedReplica(t, 2, 150, nil)
	label := ""
	for _, p := range w.truth(0) {
		if app := p.Labels["team"]; app > label {
			label = app
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	var changing sync.WaitGroup
	stop := make(chan struct{})
	changing.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1))
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			c := w.clusters.Cluster(rng.IntN(2))
			pod := rng.IntN(c.Pods())
			switch n := rng.IntN(100); {
			case n < 10:
				c.Delete(pod)
			case n < 25:
				c.Create(pod)
			default:
				c.Touch(pod)
			}
			if i%700 == 699 {
				c.Compact() // the replica has to list again
				c.Cut()
			}
		}
	})
	over := make(chan struct{})
	until := func(cluster int) func() uint64 {
		return func() uint64 {
			select {
			case <-over:
				return w.clusters.Cluster(cluster).Version()
			default:
				return ^uint64(0)
			}
		}
	}
	var readers []*reader
	var reading sync.WaitGroup
	for i := range 10 {
		r := &reader{
			replica: w, cluster: i % 2, rng: rand.New(rand.NewPCG(seed, uint64(i+2))), protobuf: i%4 >= 2,
			stream: i%3 == 0,
		}
		r.header = []string{"Accept", "application/json"}
		if r.protobuf {
			r.header[1] = protobufType
		}
		if i%5 == 1 && label != "" {
			r.selector = "team=" + label
		}
		readers = append(readers, r)
		reading.Go(func() {
			if err := r.follow(ctx, until(r.cluster)); err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	time.Sleep(4 * time.Second) // how long the objects change
	close(stop)
	changing.Wait()
	for i := range 2 { // so that every reader receives the last version
		c := w.clusters.Cluster(i)
		for _, p := range w.truth(i) {
			if p.Labels["team"] == label || label == "" {
				for n := range c.Pods() {
					if q := c.Pod(n); q != nil && q.Name == p.Name && q.Namespace == p.Namespace {
						c.Touch(n)
						break
					}
				}
				break
			}
		}
	}
	close(over)
	reading.Wait()
	resumes := 0
	for i, r := range readers {
		want := w.truth(r.cluster)
		for key, p := range want {
			if r.selector != "" && p.Labels["team"] != label {
				delete(want, key)
			}
		}
		var got []corev1.Pod
		for _, p := range r.pods {
			got = append(got, *p)
		}
		compare(t, fmt.Sprintf("reader %d (%v, %d lists, %d resumes)", i, r.header, r.lists, r.resumes), got, want)
		resumes += r.resumes
	}
	if resumes == 0 {
		t.Error("no client resumed a watch")
	}
}
