// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

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
	// writtenKey is the annotation with the time at which a change was written.
	writtenKey = "example.com/written"
	// writtenPlaceholder is as long as the nanoseconds since 1970 are.
	writtenPlaceholder = "8888888888888888888"
	// changedPods is how many pods change, at most.
	changedPods = 4000
	// changedStride is the distance between pods that change one after the other.
	changedStride = 7919
	// etcdWriters is how many changes are written into etcd at once.
	etcdWriters = 8
)

// Changes changes pods at a rate. It holds the encoded pods.
type Changes struct {
	pods []changedPod
	// write is called by several writers at once, for different pods.
	write   func(ctx context.Context, p *changedPod) error
	writers int
}

// changedPod is an encoded pod.
type changedPod struct {
	// key is its key in etcd.
	key  string
	data []byte
	// written is the offset of the time in data.
	written int
}

// newChangedPods returns some of the first n pods of the workload, in an order in
// which neighbours do not change together.
func newChangedPods(n int, encode func(*corev1.Pod) ([]byte, error)) ([]changedPod, error) {
	all := make([]changedPod, min(n, changedPods))
	for k := range all {
		pod := kubetest.Workload{Seed: 1}.Pod(k * changedStride % n)
		pod.Annotations[writtenKey] = writtenPlaceholder
		data, err := encode(pod)
		if err != nil {
			return nil, err
		}
		all[k] = changedPod{
			key:     "/registry/pods/" + pod.Namespace + "/" + pod.Name,
			data:    data,
			written: bytes.Index(data, []byte(writtenPlaceholder)),
		}
		if all[k].written < 0 {
			return nil, fmt.Errorf("pod %s/%s has no place for a time", pod.Namespace, pod.Name)
		}
	}
	return all, nil
}

// stamped returns the data with the current time. It is valid until the next call.
func (p *changedPod) stamped() []byte {
	copy(p.data[p.written:], strconv.FormatInt(time.Now().UnixNano(), 10))
	return p.data
}

// StoredChanges returns changes that are written straight into etcd. etcd accepts more
// than the API server would, and the API server pays only for learning of them.
func StoredChanges(c *kubetest.Cluster, n int) (*Changes, error) {
	pods, err := newChangedPods(n, kubetest.EncodePod)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: etcdWriters}}
	return &Changes{pods: pods, writers: etcdWriters, write: func(ctx context.Context, p *changedPod) error {
		return putEtcd(ctx, client, c.EtcdURL(), p.key, p.stamped())
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

// Run makes n changes, each when it is due at that rate or as soon as a writer is free.
// It returns how many there were per second.
func (c *Changes) Run(ctx context.Context, n, rate int) (float64, error) {
	began := time.Now()
	// The number of pods is cut to a multiple of the writers, so that no two
	// writers have the same pod.
	pods := c.pods[:len(c.pods)-len(c.pods)%c.writers]
	err := AtRate(ctx, n, rate, c.writers, func(k int) error { return c.write(ctx, &pods[k%len(pods)]) })
	return float64(n) / time.Since(began).Seconds(), err
}

// AtRate calls do with 0 to n-1, each when it is due at that number of calls in a second or as soon
// as a worker is free. Worker w has the numbers whose remainder is w when they are divided by the
// number of workers. AtRate ends early with ctx; a worker ends with its first error.
func AtRate(ctx context.Context, n, rate, workers int, do func(k int) error) error {
	began := time.Now()
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for k := w; k < n && errs[w] == nil && ctx.Err() == nil; k += workers {
				time.Sleep(time.Until(began.Add(time.Duration(k) * time.Second / time.Duration(rate))))
				errs[w] = do(k)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
