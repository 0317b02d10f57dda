// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestJoin restarts two replicas without a group as members of one, one after the other, while clients
// have versions of /fleet. A member answers a version or a continue token from outside of the group
// once with 410. The list after it has a version of the group, which is not lower, and watches continue at it.
func TestJoin(t *testing.T) {
	c := kubetest.Start(t, &kubetest.Options{Name: clusterName})
	configMaps := kubernetes.NewForConfigOrDie(c.Config()).CoreV1().ConfigMaps(groupNamespace)
	create := func(name string) {
		_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		expect.NoError(t, err)
	}
	for i := range 3 {
		create(fmt.Sprintf("before-%d", i))
	}
	p := newPair(t)
	binary, err := program.Binary()
	expect.NoError(t, err)
	start := func(which int, flags ...string) {
		p.start(which, binary, nil, append([]string{"--kubeconfig", c.Kubeconfig(), "--context", clusterName,
			"--resources", "configmaps"}, flags...)...)
	}
	start(0)
	start(1)
	p.awaitReady()
	informed := followFleet(t, p)

	for i := range p.replicas {
		former := &versionReader{t: t, process: p.at(i)}
		before, token := former.list(http.StatusOK, url.Values{"limit": {"1"}})
		expect.Equal(t, before&1023 >= 512, true)
		expect.Equal(t, former.watch(before), http.StatusOK)

		p.at(i).Stop()
		start(i, "--replica-group", groupName, "--group-cluster", clusterName, "--group-namespace", groupNamespace)
		p.awaitReady()
		member := &versionReader{t: t, process: p.at(i)}
		// The member lists when it has a Lease.
		expect.Eventually(t, patience, func() error {
			if code := member.watch(0); code != http.StatusOK {
				return fmt.Errorf("a watch is %d; log:\n%s", code, p.at(i).Tail())
			}
			return nil
		})
		expect.Equal(t, member.watch(before), http.StatusGone)
		member.list(http.StatusGone, url.Values{"limit": {"1"}, "continue": {token}})
		member.list(http.StatusGone, url.Values{"resourceVersion": {strconv.FormatUint(before, 10)},
			"resourceVersionMatch": {"NotOlderThan"}})
		after, _ := member.list(http.StatusOK, nil)
		if after&1023 >= 512 || after < before {
			t.Errorf("replica %d lists at %d (slot %d) after %d (slot %d)", i, after, after&1023, before, before&1023)
		}
		expect.Equal(t, member.watch(after), http.StatusOK)
		create(fmt.Sprintf("after-%d", i))
		expect.Eventually(t, patience, func() error {
			if err := informed.differs(t.Context()); err != nil {
				return err
			}
			if n := len(informed.List()); n != 4+i {
				return fmt.Errorf("the informer has %d config maps, want %d", n, 4+i)
			}
			return nil
		})
	}
	// It has moved twice at most with a version that it could not use: with each list but the first.
	if lists, expired := informed.lists.Load(), informed.expired.Load(); lists > 3 || expired > 2 {
		t.Errorf("the informer has listed %d times, and %d versions were expired", lists, expired)
	}
}

// followFleet follows the config maps of the fleet through the load balancer, with client-go's reflector.
func followFleet(t *testing.T, p *pair) *followed {
	config := p.balancer.config(p.at(0), "/fleet")
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return keyedByCluster{next} })
	client, err := dynamic.NewForConfig(config)
	expect.NoError(t, err)
	f := &followed{name: "informer of the fleet", Store: cache.NewStore(keyInFleet),
		client: client.Resource(configMapResource).Namespace(groupNamespace), ofFleet: true}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	expect.Soon(t, "the informer has listed", func() bool { return f.lists.Load() > 0 })
	return f
}

// versionReader presents versions to a replica, past the load balancer.
type versionReader struct {
	t       *testing.T
	process *program.Process
}

func (v *versionReader) get(query url.Values) *http.Response {
	v.t.Helper()
	client, err := rest.HTTPClientFor(v.process.Config())
	expect.NoError(v.t, err)
	v.t.Cleanup(func() { closeIdle(client) })
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet,
		"https://"+v.process.Address+configMapsOfGroup+"?"+query.Encode(), http.NoBody)
	expect.NoError(v.t, err)
	r.Header.Set("Watershed-Fleet", "keyed-by-cluster")
	resp, err := client.Do(r)
	expect.NoError(v.t, err)
	v.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// list requests a list, and returns its version and continue token.
func (v *versionReader) list(code int, query url.Values) (version uint64, token string) {
	v.t.Helper()
	resp := v.get(query)
	expect.Equal(v.t, resp.StatusCode, code)
	var list metav1.PartialObjectMetadataList
	expect.NoError(v.t, json.NewDecoder(resp.Body).Decode(&list))
	if code == http.StatusOK {
		var err error
		version, err = strconv.ParseUint(list.ResourceVersion, 10, 64)
		expect.NoError(v.t, err)
	}
	return version, list.Continue
}

// watch requests a watch for a second, and returns its code, or the code of the error that it ends with.
func (v *versionReader) watch(version uint64) (code int) {
	v.t.Helper()
	resp := v.get(url.Values{"watch": {"true"}, "timeoutSeconds": {"1"},
		"resourceVersion": {strconv.FormatUint(version, 10)}})
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode
	}
	for events := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   string
			Object struct{ Code int }
		}
		if err := events.Decode(&event); err != nil {
			return http.StatusOK // it has ended
		}
		if event.Type == "ERROR" {
			return event.Object.Code
		}
	}
}
