// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/kube"
)

// lastFormat is the version of [lastKnown]. It changes when another program could misread it.
const lastFormat = 1

// lastKnown is what a member stores beside the files of its cluster, so that they can be read
// after a restart while the cluster cannot be asked: who confirmed its identity over which
// connection, and which resources it served.
type lastKnown struct {
	Format   int    `json:"format"`
	Endpoint string `json:"endpoint"`
	// Connection is a digest of the configuration, see connectionOf.
	Connection string          `json:"connection"`
	UID        string          `json:"uid"`
	Resources  []kube.Resource `json:"resources"`
}

// connectionOf returns a digest of the parts of a configuration that decide which server is
// trusted to be the cluster, and for which user its rights were used. It is comparable between
// processes, so it contains no credentials: those of a person change every day, and a digest
// could be used to test guesses of them. It is "" if the configuration has functions, which
// cannot be compared, or its certificate authority cannot be read.
func connectionOf(cfg *rest.Config) string {
	if cfg.Dial != nil || cfg.Transport != nil || cfg.WrapTransport != nil {
		return ""
	}
	connection := struct {
		Endpoint, ServerName, Proxy string
		Insecure                    bool
		CA                          []byte
		As                          rest.ImpersonationConfig
	}{Endpoint: identityOf(cfg).Endpoint, ServerName: cfg.ServerName, Insecure: cfg.Insecure, CA: cfg.CAData, As: cfg.Impersonate}
	if u := proxyOf(cfg); u != nil {
		u.User = nil
		connection.Proxy = u.String()
	}
	var err error
	if len(cfg.CAData) == 0 && cfg.CAFile != "" {
		connection.CA, err = os.ReadFile(cfg.CAFile)
	}
	text, failed := json.Marshal(connection)
	if errors.Join(err, failed) != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// notes guards the note of a member in its files. All methods are safe for concurrent use.
type notes struct {
	mu sync.Mutex
	// known means that content is what the file has, nil if there is none.
	known   bool
	content []byte
}

// write stores a note, unless the file has it.
func (n *notes) write(in *disk.Directory, cluster string, content []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known {
		n.content, _ = in.Note(cluster) // one that cannot be read is replaced
		n.known = true
	}
	if bytes.Equal(n.content, content) {
		return nil
	}
	err := in.WriteNote(cluster, content)
	n.known, n.content = err == nil, content
	return err
}

// remove removes the note.
func (n *notes) remove(from *disk.Directory, cluster string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known && n.content == nil {
		return nil
	}
	err := from.RemoveNote(cluster)
	n.known, n.content = err == nil, nil
	return err
}

// keepsLast reports whether the last state of a cluster can be read before the cluster answers.
func (s *settings) keepsLast() bool { return s.LastState && s.stores() }

// connectLocked records the configuration that is used from now on. A last state that is used was
// stored over the connection of the one before, so it ends if that differs.
func (m *Member) connectLocked(cfg *rest.Config) {
	was := m.connection
	m.connection, m.recallable = connectionOf(cfg), m.predecessor == (Identity{})
	if m.connection != was && m.dropLastLocked() {
		m.logger.Warn("the last state of the cluster is not used any more: its configuration has changed")
	}
}

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
	last.UID, last.Endpoint = m.known.told()
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

// parse reads a note, and compares it with the configuration.
func (l *lastKnown) parse(text []byte, connection, endpoint string) error {
	version := struct{ Format int }{}
	if err := json.Unmarshal(text, &version); err != nil {
		return fmt.Errorf("note: %w", err)
	}
	if version.Format != lastFormat {
		return fmt.Errorf("note has format %d, and this program supports %d", version.Format, lastFormat)
	}
	if err := json.Unmarshal(text, l); err != nil {
		return fmt.Errorf("note: %w", err)
	}
	switch {
	case l.UID == "" || len(l.Resources) == 0:
		return errors.New("note lacks the UID of the cluster or its resources")
	case l.Endpoint != endpoint:
		return fmt.Errorf("it was stored for %s, and the address is %s", l.Endpoint, endpoint)
	case connection == "" || l.Connection != connection:
		return errors.New("it was stored with another certificate authority, proxy or user to impersonate")
	}
	return nil
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

// dropLastLocked drops the last state of the cluster. It returns false if it is not used.
func (m *Member) dropLastLocked() bool {
	if !m.known.forget() {
		return false
	}
	for at, x := range m.mirrors {
		m.endLocked(at, x)
	}
	m.listed, m.served = nil, nil
	return true
}
