// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"encoding/json"
	"errors"

	"github.com/watershed-project/watershed/disk"
)

// Unconfirmed reports whether the cluster has not answered since the member joined, so that
// readers receive its last state from files: see [Options.LastState]. Once it is false, it
// stays false. It is always false without that option.
func (m *Member) Unconfirmed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.settings.keepsLast() && m.discovered.IsZero()
}

// Refresh makes the member identify its cluster soon, if readers receive its last state. It is for
// programs that have received an answer from the cluster.
func (m *Member) Refresh() {
	if m.known.isAssumed() {
		m.poke()
	}
}

// remember stores what is needed to read the files while the cluster does not answer. It is
// called after a discovery.
func (m *Member) remember() {
	if !m.settings.keepsLast() {
		return
	}
	m.mu.Lock()
	last := lastKnown{Format: lastFormat, Connection: m.connection, Resources: m.listed}
	last.UID, last.Endpoint = m.known.returned()
	m.mu.Unlock()
	if last.UID == "" || last.Connection == "" {
		return
	}
	text, err := json.Marshal(last)
	if err == nil {
		err = m.notes.write(m.settings.Disk, m.name, text)
	}
	if err != nil {
		m.logger.Warn("the stored state cannot be used if the cluster does not answer after a restart", "err", err)
	}
}

// lastKnown returns what was stored about the cluster if it can be used with the present
// configuration, else nil. It logs why it cannot, and does so once for each configuration.
func (m *Member) lastKnown() *lastKnown {
	m.mu.Lock()
	wanted, connection, endpoint := m.recallable, m.connection, m.Identity().Endpoint
	m.recallable = false
	m.mu.Unlock()
	if !wanted {
		return nil
	}
	text, err := m.settings.Disk.Note(m.name)
	if text == nil && err == nil {
		return nil // nothing was stored
	}
	last := &lastKnown{}
	if err == nil {
		err = last.parse(text, connection, endpoint)
	}
	if err != nil {
		m.logger.Warn("cluster does not answer, and its stored state is not used", "err", err)
		return nil
	}
	return last
}

// isDisproof reports whether an error shows that a cluster which did not answer must not be
// read from its last state: it answers and refuses the credentials, another server has its
// address, or another cluster. Other errors show neither.
func isDisproof(err error) bool {
	switch TroubleOf(err) {
	case UnknownAuthority, WrongHost, CertificateExpired, NotServed:
		return true
	}
	return isFinal(err)
}

// isFinal reports whether an error shows that the last state must not be used after the next
// restart either.
func isFinal(err error) bool {
	switch TroubleOf(err) {
	case Unauthorized, Forbidden, AnotherCluster:
		return true
	}
	return errors.Is(err, disk.ErrUnidentified)
}

// disprove ends the use of the last state because of an error for which isDisproof is true.
// Watches of it end. It does not wait for its mirrors to end.
func (m *Member) disprove(err error) {
	if !m.settings.keepsLast() {
		return
	}
	m.mu.Lock()
	used := m.dropLastLocked()
	m.recallable = (m.recallable || used) && !isFinal(err)
	m.mu.Unlock()
	if used {
		m.logger.Warn("the last state of the cluster is not used any more", "err", err)
		m.poke()
	}
	if !isFinal(err) {
		return
	}
	if err := m.notes.remove(m.settings.Disk, m.name); err != nil {
		m.logger.Warn("what is stored about the cluster cannot be removed: its last state may be used after a restart", "err", err)
	}
}
