// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"sync"
	"time"
)

// network is the state of the simulated network, which the links of a proxy share.
type network struct {
	mu       sync.Mutex    // guards all below
	flowing  chan struct{} // closed while bytes flow, open while stalled
	delay    time.Duration
	up, down int64 // bytes to and from the server
}

func newNetwork() *network {
	n := &network{flowing: make(chan struct{})}
	close(n.flowing)
	return n
}

// stall stops all bytes until resume.
func (n *network) stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.flowing:
		n.flowing = make(chan struct{})
	default:
	}
}

func (n *network) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.flowing:
	default:
		close(n.flowing)
	}
}

func (n *network) setDelay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// conditions returns the conditions for a chunk that arrives now.
func (n *network) conditions() (flowing <-chan struct{}, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.flowing, n.delay
}

// count adds bytes that were passed on.
func (n *network) count(up, down int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up += int64(up)
	n.down += int64(down)
}

// counts returns the bytes that were passed on.
func (n *network) counts() (up, down int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up, n.down
}
