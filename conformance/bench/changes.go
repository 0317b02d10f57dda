// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// writtenKey is the annotation that says when a change was written.
	writtenKey = "example.com/written"
	// writtenMark is what is there before: as long as nanoseconds since 1970 are.
	writtenMark = "8888888888888888888"
	// changed is how many pods change, at most.
	changed = 4000
	// writers is how many changes are written at once.
	writers = 8
)

// revision is a pod that changes, encoded. What is different each time has its place.
type revision struct {
	key  string
	data []byte
	at   int
}

// revisions are pods of the first n, far from each other.
func revisions(n int, encode func(*corev1.Pod) ([]byte, error)) ([]revision, error) {
	const stride = 7919 // neighbours are not changed together
	all := make([]revision, min(n, changed))
	for k := range all {
		pod := kubetest.Workload{Seed: 1}.Pod(k * stride % n)
		pod.Annotations[writtenKey] = writtenMark
		data, err := encode(pod)
		if err != nil {
			return nil, err
		}
		all[k] = revision{key: "/registry/pods/" + pod.Namespace + "/" + pod.Name, data: data, at: bytes.Index(data, []byte(writtenMark))}
		if all[k].at < 0 {
			return nil, fmt.Errorf("pod %s/%s has no place for a time", pod.Namespace, pod.Name)
		}
	}
	return all, nil
}

// written is the revision as it is now. It is valid until the next call.
func (r *revision) written() []byte {
	copy(r.data[r.at:], strconv.FormatInt(time.Now().UnixNano(), 10))
	return r.data
}

// changes are pods that change at a rate.
type changes struct {
	pods []revision
	// write is called by some writers at once, for different pods.
	write   func(ctx context.Context, r *revision) error
	writers int
}

// storedChanges are written straight into etcd, which takes more than the API server
// would, and costs the API server only what it costs to learn of them.
func storedChanges(c *kubetest.Cluster, n int) (*changes, error) {
	pods, err := revisions(n, kubetest.EncodePod)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: writers}}
	return &changes{pods: pods, writers: writers, write: func(ctx context.Context, r *revision) error {
		return putEtcd(ctx, client, c.EtcdURL(), r.key, r.written())
	}}, nil
}

// putEtcd writes with etcd's HTTP API.
func putEtcd(ctx context.Context, client *http.Client, url, key string, value []byte) error {
	body, err := json.Marshal(map[string]string{
		"key":   base64.StdEncoding.EncodeToString([]byte(key)),
		"value": base64.StdEncoding.EncodeToString(value),
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v3/kv/put", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("put %s: %s: %s", key, resp.Status, text)
	}
	return err
}

// frameChanges are sent to the watchers of a bare server, as an API server writes
// them.
func frameChanges(bare *companion, n int) (*changes, error) {
	pods, err := revisions(n, func(pod *corev1.Pod) ([]byte, error) {
		pod.APIVersion, pod.Kind = "v1", "Pod"
		pod.ResourceVersion = "1000000"
		object, err := json.Marshal(pod)
		return append(append([]byte(`{"type":"MODIFIED","object":`), object...), "}\n"...), err
	})
	if err != nil {
		return nil, err
	}
	return &changes{pods: pods, writers: 1, write: func(_ context.Context, r *revision) error {
		return bare.sendFrame(r.written())
	}}, nil
}

// flow makes so many changes, each when it is due or as soon as a writer is free. It
// returns how many there were in a second.
func (c *changes) flow(ctx context.Context, n, rate int) (float64, error) {
	began := time.Now()
	errs := make([]error, c.writers)
	var all sync.WaitGroup
	for w := range c.writers {
		all.Go(func() {
			for k := w; k < n && errs[w] == nil && ctx.Err() == nil; k += c.writers {
				time.Sleep(time.Until(began.Add(time.Duration(k) * time.Second / time.Duration(rate))))
				errs[w] = c.write(ctx, &c.pods[k%(len(c.pods)-len(c.pods)%c.writers)])
			}
		})
	}
	all.Wait()
	return float64(n) / time.Since(began).Seconds(), errors.Join(errs...)
}
