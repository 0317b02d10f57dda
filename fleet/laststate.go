// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "github.com/watershed-project/watershed/fleet/internal/laststate"

// Unconfirmed reports whether no discovery of the cluster has succeeded since the member joined.
// Until then, readers can get only its last state from files, if there is a usable one: see
// [Options.LastState]. Once it is false, it stays false. It is always false without that option.
func (m *Member) Unconfirmed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.settings.keepsLast() && m.discovered.IsZero()
}

// Refresh makes the member identify its cluster soon if readers receive its last state, and reports
// whether they do. It is for programs that have received an answer from the cluster.
func (m *Member) Refresh() bool {
	if !m.server.Known.IsAssumed() {
		return false
	}
	m.server.RequestDiscovery()
	return true
}

// remember stores what is needed to read the files while the cluster does not answer. It is
// called after a discovery.
func (m *Member) remember() {
	if !m.settings.keepsLast() {
		return
	}
	if err := m.notes.Write(m.settings.Disk.Storage(), m.Name(), m.note); err != nil {
		m.logger.Warn("cannot store the note of the cluster: its last state may not be readable if it does not "+
			"answer after a restart", "err", err)
	}
}

// note returns the note of the cluster, nil if none may be stored: the cluster has not returned
// its UID over the connection in use, or has refused the credentials since, or the member has left.
func (m *Member) note() ([]byte, error) {
	m.mu.Lock()
	last, gone := laststate.Note{Connection: m.connection, Resources: m.mirrors.Listed()}, !m.gone.IsZero()
	last.UID, last.Endpoint = m.server.Known.Returned()
	m.mu.Unlock()
	if gone {
		return nil, nil
	}
	return last.Encode()
}

// lastKnown returns what was stored about the cluster if it can be used with the present
// configuration, else nil. It logs why it cannot, and does so once for each configuration.
func (m *Member) lastKnown() *laststate.Note {
	m.mu.Lock()
	wanted, connection, endpoint := m.recallable, m.connection, m.Identity().Endpoint
	m.recallable = false
	m.mu.Unlock()
	if !wanted {
		return nil
	}
	text, err := m.settings.Disk.Storage().Note(m.Name())
	if text == nil && err == nil {
		return nil // nothing was stored
	}
	var last *laststate.Note
	if err == nil {
		last, err = laststate.Parse(text, connection, endpoint)
	}
	if err != nil {
		m.logger.Warn("cluster does not answer, and its stored state is not used", "err", err)
		return nil
	}
	return last
}

// disprove ends the use of the last state because of an error for which [laststate.Disproves] is
// true. Watches of it end. It does not wait for its mirrors to end. If [laststate.IsFinal] is true,
// it also removes the note, and requests a discovery: if that succeeds, the cluster accepts the
// credentials again, and the note is stored again.
func (m *Member) disprove(err error) {
	if !m.settings.keepsLast() {
		return
	}
	m.mu.Lock()
	used := m.dropLastLocked()
	m.recallable = (m.recallable || used) && !laststate.IsFinal(err)
	m.mu.Unlock()
	if used {
		m.logger.Warn("the last state of the cluster is not used any more", "err", err)
	}
	removed := false
	if laststate.IsFinal(err) {
		if removed, err = m.notes.Remove(m.settings.Disk.Storage(), m.Name()); err != nil {
			m.logger.Warn("cannot remove the note of the cluster: its last state may be readable again after a restart",
				"err", err)
		}
	}
	if used || removed {
		m.server.RequestDiscovery()
	}
}
