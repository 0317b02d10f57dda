// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/build"
	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
	"github.com/watershed-project/watershed/cmd/watershed/internal/peer"
	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
	"github.com/watershed-project/watershed/cmd/watershed/internal/verification"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica"
)

// peers connects this replica with the others of its group.
type peers struct {
	fleet    *fleet.Fleet
	self     *group.Replica
	exchange *peer.Exchange
	// server receives the notes of the others. It is set before the exchange runs.
	server *replica.Server
	// copies compares the copies of this replica with the copies of the others.
	copies *verification.Replicas

	mu sync.Mutex
	// reports are the last reports of the others.
	reports map[peer.Peer]replica.PeerReport
}

// peerPort is where other replicas reach this one. The zero value means that they do not.
type peerPort struct {
	listener net.Listener
	// address is the one for others, and keyHash the hash of the key: the Lease has both.
	address, keyHash string
	key              *peer.Key
}

// listenPeers opens the port for other replicas, if there is one.
func (o *runner) listenPeers(ctx context.Context, logger *slog.Logger) (p peerPort, err error) {
	if p.key, err = peer.NewKey(); err != nil {
		return p, err
	}
	if p.listener, p.address, err = o.ListenPeers(ctx); p.listener == nil || err != nil {
		return p, err
	}
	p.keyHash = p.key.Hash()
	logger.Info("port for other replicas", "listen", p.listener.Addr().String(), "address", p.address)
	return p, nil
}

// close closes the port, if there is one.
func (p *peerPort) close() {
	if p.listener != nil {
		_ = p.listener.Close()
	}
}

// newPeers returns the connections with the other replicas of a group, nil if this replica has no port for
// them.
func newPeers(port *peerPort, self *group.Replica, f *fleet.Fleet, logger *slog.Logger) (p *peers, err error) {
	if port.listener == nil {
		return nil, nil
	}
	p = &peers{fleet: f, self: self, reports: map[peer.Peer]replica.PeerReport{}}
	p.exchange, err = peer.New(port.listener, peer.Options{
		Key: port.key, Holder: self.Holder(), Peers: self.Peers, Changed: self.Changed, Renewed: self.Renewed,
		MaxNote: replica.MaxNote, Receive: p.receive, Report: p.report, Reported: p.reported,
		Versions: verification.NewAnswerer(f).Answer, Logger: logger,
	})
	p.copies = verification.NewReplicas(f, p.exchange, logger)
	return p, err
}

// options returns the options of the replica, nil if there are no others.
func (p *peers) options() *replica.Peers {
	if p == nil {
		return nil
	}
	return &replica.Peers{Send: p.exchange.Send, Complete: p.exchange.Complete, Reports: p.known}
}

// parts returns the sources of the metrics, nil if there are no others.
func (p *peers) parts() (*peer.Exchange, *verification.Replicas) {
	if p == nil {
		return nil, nil
	}
	return p.exchange, p.copies
}

// receive gives the note of another replica to this one.
func (p *peers) receive(note []byte) error {
	err := p.server.ReceiveNote(note)
	if errors.Is(err, replica.ErrTooManyNotes) {
		return fmt.Errorf("%w: %w", peer.ErrBusy, err)
	}
	return err
}

// report is what a replica reports of itself.
type report struct {
	Version  string                  `json:"version"`
	Clusters []replica.ClusterReport `json:"clusters"`
}

// report returns the report of this replica.
func (p *peers) report() ([]byte, error) {
	return json.Marshal(report{build.Version(), replica.Report(p.fleet)})
}

// maxPeerText is how many bytes of a name a report of another replica may have.
const maxPeerText = 253

// reported records the report of another replica, and compares it with the present state of this one.
// What cannot be read is dropped.
func (p *peers) reported(from peer.Peer, raw []byte) {
	var r report
	if json.Unmarshal(raw, &r) != nil {
		return
	}
	own, uids := map[string]uint64{}, map[string]string{}
	for _, c := range replica.Report(p.fleet) {
		own[c.Name], uids[c.Name] = c.Version, c.UID
	}
	for i := range r.Clusters {
		c := &r.Clusters[i]
		c.Name, c.UID = warning.Shorten(c.Name, maxPeerText), warning.Shorten(c.UID, maxPeerText)
		c.State = warning.Shorten(c.State, warning.MaxName)
		if version := own[c.Name]; version > 0 && c.Version > 0 {
			c.Behind = int64(version - c.Version)
			reached := c.Version
			if c.State != fleet.Live.String() || c.UID != uids[c.Name] {
				reached = math.MaxUint64 // the other replica knows that its copy is not current
			}
			p.copies.Reached(from, c.Name, reached, version)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports[from] = replica.PeerReport{
		At: time.Now(), Version: warning.Shorten(r.Version, warning.MaxName), Clusters: r.Clusters,
	}
	list := p.self.Peers()
	for other := range p.reports {
		if !slices.Contains(list, other) {
			delete(p.reports, other)
		}
	}
}

// known returns the others with their last reports.
func (p *peers) known() []replica.PeerReport {
	states := p.exchange.States()
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]replica.PeerReport, len(states))
	for i := range states {
		s := &states[i]
		all[i] = p.reports[s.Peer]
		all[i].Name, all[i].Address, all[i].Connected = s.Name(), warning.Shorten(s.Address, maxPeerText), s.Err == nil
		if s.Err != nil {
			all[i].Error = warning.Shorten(s.Err.Error(), warning.MaxCause)
		}
	}
	return all
}

// problems returns the problems that copies differ, and each other replica that is unreachable.
func (p *peers) problems() []fleet.Problem {
	all := p.copies.Problems(remedy.ReplicasDisagree)
	for _, s := range p.exchange.States() {
		if s.Err != nil {
			message := fmt.Sprintf("%s at %s: %v", s.Name(), s.Address, s.Err)
			all = append(all, fleet.Problem{Reason: remedy.PeerUnreachable, Since: s.Since,
				Message: warning.Shorten(message, warning.MaxCause)})
		}
	}
	return all
}
