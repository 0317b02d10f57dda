// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/conformance/program"
)

// ledger records which process has issued which versions.
type ledger struct {
	mu sync.Mutex
	// spans have the least and the greatest version of each process in each slot.
	spans map[uint64]map[*program.Process]*[2]uint64
	seen  map[uint64]bool
	// presented counts versions that clients have presented, and expired those that got 410.
	presented, expired int
	wrong              []string
}

// issue records a version in a response of a process.
func (l *ledger) issue(by *program.Process, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[version] = true
	slot := version & 1023
	if slot >= 512 {
		l.wrong = append(l.wrong, fmt.Sprintf("version %d has slot %d, which is not for groups", version, slot))
	}
	if l.spans[slot] == nil {
		l.spans[slot] = map[*program.Process]*[2]uint64{}
	}
	if s := l.spans[slot][by]; s != nil {
		s[0], s[1] = min(s[0], version), max(s[1], version)
		return
	}
	l.spans[slot][by] = &[2]uint64{version, version}
}

// check returns what is wrong. The versions of two processes with the same slot must not overlap:
// then none can have been issued twice.
func (l *ledger) check() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := l.wrong
	for slot, processes := range l.spans {
		all := slices.SortedFunc(maps.Values(processes), func(a, b *[2]uint64) int {
			return slices.Compare(a[:], b[:])
		})
		for i := 1; i < len(all); i++ {
			if all[i][0] <= all[i-1][1] {
				wrong = append(wrong, fmt.Sprintf("two processes with slot %d have the versions %v and %v", slot,
					*all[i-1], *all[i]))
			}
		}
	}
	return wrong
}

// complain records a mistake.
func (l *ledger) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *ledger) count(present, expire int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.presented, l.expired = l.presented+present, l.expired+expire
}

// groupClient lists and watches the config maps of the fleet through the load balancer, and moves between
// the replicas at random. It has what a client has that trusts each response.
type groupClient struct {
	ledger *ledger
	fleetClient
	rng *rand.Rand

	mu sync.Mutex
	// objects have versions by cluster and name.
	objects map[string]string
	// version is the one that the client has, 0 for none. lost is a version that got 410: the
	// next one must not be lower if it is of the same process.
	version, lost uint64
	by            *program.Process
}

// fleetClient sends requests to the fleet through a load balancer.
type fleetClient struct {
	balancer *balancer
	root     string
	client   *http.Client
}

// newFleetClient returns a client with connections of its own.
func newFleetClient(b *balancer, config *rest.Config) (fleetClient, error) {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{Timeout: time.Second}).DialContext // its own transport
	client, err := rest.HTTPClientFor(config)
	return fleetClient{b, config.Host, client}, err
}

// get sends a request, and waits for its header. It returns the process that has answered. The caller
// closes the body.
func (c *fleetClient) get(
	ctx context.Context, path, accept string, query url.Values,
) (resp *http.Response, by *program.Process, err error) {
	var local net.Addr
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { local = info.Conn.LocalAddr() },
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.root+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Watershed-Fleet", "keyed-by-cluster")
	if resp, err = c.client.Do(r); err != nil {
		return nil, nil, err
	}
	return resp, c.balancer.processOf(local), nil
}

// move makes the next request use another connection, to either replica.
func (c *fleetClient) move() { closeIdle(c.client) }

// closeIdle closes the idle connections of a client of client-go, whose own method does not reach them.
func closeIdle(c *http.Client) { utilnet.CloseIdleConnectionsFor(c.Transport) }

const (
	jsonType = "application/json"
	// clusterAnnotation has the cluster of an object of the fleet.
	clusterAnnotation = "watershed.dev/cluster"
)

const configMapsOfGroup = "/fleet/api/v1/namespaces/" + groupNamespace + "/configmaps"

// has returns the objects, sorted.
func (c *groupClient) has() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for name, version := range c.objects {
		all = append(all, name+"@"+version)
	}
	slices.Sort(all)
	return all
}

// run uses the replicas until ctx ends.
func (c *groupClient) run(ctx context.Context) {
	for ctx.Err() == nil {
		if c.lost == 0 && c.rng.IntN(2) == 0 {
			c.move() // not after a 410: the same replica must not answer with a lower version
		}
		// A replica may be stopped.
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		var err error
		switch {
		case c.version == 0 || c.rng.IntN(4) == 0:
			err = c.list(one)
		default:
			err = c.watch(one)
		}
		cancel()
		if err != nil {
			if c.version == 0 {
				c.lost, c.by = 0, nil // the process may have ended
				c.move()
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// list replaces the state. A client with a version presents it.
func (c *groupClient) list(ctx context.Context) error {
	query := url.Values{}
	if c.version != 0 {
		query.Set("resourceVersion", strconv.FormatUint(c.version, 10))
		c.ledger.count(1, 0)
	}
	resp, by, err := c.get(ctx, configMapsOfGroup, jsonType, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusGone && c.version != 0:
		c.expire(by)
		return nil
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("list is %s", resp.Status)
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []groupObject
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return err
	}
	version, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	c.ledger.issue(by, version)
	least := c.version
	if by == c.by {
		least = max(least, c.lost)
	}
	if version < least {
		c.ledger.complain("a client that has presented %d gets the version %d", least, version)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version, c.lost, c.by, c.objects = version, 0, by, map[string]string{}
	for _, o := range list.Items {
		c.objects[o.name()] = o.Metadata.ResourceVersion
	}
	return nil
}

// expire records that the version of the client got 410.
func (c *groupClient) expire(by *program.Process) {
	c.ledger.count(0, 1)
	c.lost, c.version, c.by = c.version, 0, by
}

// watch follows the changes after the version for a moment.
func (c *groupClient) watch(ctx context.Context) error {
	c.ledger.count(1, 0)
	resp, by, err := c.get(ctx, configMapsOfGroup, jsonType, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(1 + c.rng.IntN(2))},
		"resourceVersion": {strconv.FormatUint(c.version, 10)},
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("watch is %s", resp.Status)
	}
	for events := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := events.Decode(&event); err != nil {
			return nil // it has ended
		}
		if event.Type == "ERROR" {
			var status struct{ Code int }
			_ = json.Unmarshal(event.Object, &status)
			if status.Code != http.StatusGone {
				return fmt.Errorf("a watch ends with %s", event.Object)
			}
			c.expire(by)
			return nil
		}
		var o groupObject
		if err := json.Unmarshal(event.Object, &o); err != nil {
			return err
		}
		if err := c.apply(by, event.Type, o); err != nil {
			return err
		}
	}
}

// apply applies an event.
func (c *groupClient) apply(by *program.Process, event string, o groupObject) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch event {
	case "BOOKMARK":
		version, err := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
		if err != nil {
			return err
		}
		c.ledger.issue(by, version)
		if version < c.version {
			c.ledger.complain("a watch from %d has a bookmark %d", c.version, version)
		}
		c.version, c.by = version, by
	case "DELETED":
		delete(c.objects, o.name())
	case "ADDED", "MODIFIED":
		c.objects[o.name()] = o.Metadata.ResourceVersion
	default:
		return errors.New("event " + event)
	}
	return nil
}

// groupObject is an object in a response.
type groupObject struct {
	Metadata struct {
		Name, ResourceVersion string
		Annotations           map[string]string
	}
}

func (o *groupObject) name() string {
	return o.Metadata.Annotations[clusterAnnotation] + "/" + o.Metadata.Name
}
