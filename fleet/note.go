// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/kube"
)

// lastFormat is the version of [lastKnown]. It changes when another program could misread it.
const lastFormat = 1

// lastKnown is what a member stores beside the files of its cluster, so that they can be read
// after a restart while the cluster cannot be asked: the UID that the cluster returned, the
// connection over which it did, and the resources that it served.
type lastKnown struct {
	Format   int    `json:"format"`
	Endpoint string `json:"endpoint"`
	// Connection is a digest of the configuration, see [upstream.Connection].
	Connection string          `json:"connection"`
	UID        string          `json:"uid"`
	Resources  []kube.Resource `json:"resources"`
}

// notes guards the note of a cluster in its files. A member shares it with its successor, which
// has the same file. All methods are safe for concurrent use.
type notes struct {
	mu sync.Mutex
	// known means that content is what the file has, nil if there is none.
	known   bool
	content []byte
	// failed means that the last note could not be written.
	failed bool
}

// write stores a note, unless the file has it. The function "note" returns it, nil if none may be
// stored, and is called while no other note is written or removed. After an error, write returns no
// further ones until it has succeeded, because the caller logs them: a note of a newer program is
// never replaced.
func (n *notes) write(in *disk.Directory, cluster string, note func() ([]byte, error)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	content, err := note()
	if content == nil {
		return err
	}
	if !n.known {
		n.content, _ = in.Note(cluster) // one that cannot be read is replaced, unless a newer program wrote it
		n.known = true
	}
	if bytes.Equal(n.content, content) {
		return nil
	}
	err = in.WriteNote(cluster, content)
	again := n.failed
	n.known, n.content, n.failed = err == nil, content, err != nil
	if again {
		return nil
	}
	return err
}

// remove removes the note, and reports whether there was one.
func (n *notes) remove(from *disk.Directory, cluster string) (removed bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known {
		n.content, err = from.Note(cluster)
		n.known = err == nil
	}
	if n.known && n.content == nil {
		return false, nil
	}
	err = from.RemoveNote(cluster)
	n.known, n.content = err == nil, nil
	return err == nil, err
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
		return fmt.Errorf("it was stored for address %s, and the configured address is %s", l.Endpoint, endpoint)
	case connection == "" || l.Connection != connection:
		return errors.New("it was stored with other connection settings (certificate authority, server name, insecure-skip-tls-verify, " +
			"proxy or impersonated user), or the present settings cannot be compared")
	}
	return nil
}
