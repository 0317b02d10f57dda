// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package laststate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/kube"
)

// format is the version of [Note]. It changes when another program could misread it.
const format = 1

// Note is what a member stores beside the files of its cluster, so that they can be read
// after a restart while the cluster cannot be asked: the UID that the cluster returned, the
// connection over which it did, and the resources that it served.
type Note struct {
	Format   int    `json:"format"`
	Endpoint string `json:"endpoint"`
	// Connection is a digest of the configuration, see upstream.Connection.
	Connection string          `json:"connection"`
	UID        string          `json:"uid"`
	Resources  []kube.Resource `json:"resources"`
}

// Encode returns the content of the note, nil if it lacks the UID or the connection, so that it must not
// be stored.
func (n Note) Encode() ([]byte, error) {
	if n.UID == "" || n.Connection == "" {
		return nil, nil
	}
	n.Format = format
	return json.Marshal(n)
}

// Parse reads a note, and returns an error if it was stored with another configuration.
func Parse(text []byte, connection, endpoint string) (*Note, error) {
	version := struct{ Format int }{}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, fmt.Errorf("note: %w", err)
	}
	if version.Format != format {
		return nil, fmt.Errorf("note has format %d, and this program supports %d", version.Format, format)
	}
	n := &Note{}
	if err := json.Unmarshal(text, n); err != nil {
		return nil, fmt.Errorf("note: %w", err)
	}
	switch {
	case n.UID == "" || len(n.Resources) == 0:
		return nil, errors.New("note lacks the UID of the cluster or its resources")
	case n.Endpoint != endpoint:
		return nil, fmt.Errorf("it was stored for address %s, and the configured address is %s", n.Endpoint, endpoint)
	case connection == "" || n.Connection != connection:
		return nil, errors.New("it was stored with other connection settings (certificate authority, server name, " +
			"insecure-skip-tls-verify, " +
			"proxy or impersonated user), or the present settings cannot be compared")
	}
	return n, nil
}

// File guards the note of a cluster in its files. A member shares it with its successor, which
// has the same file. All methods are safe for concurrent use.
type File struct {
	mu sync.Mutex
	// known means that content is what the file has, nil if there is none.
	known   bool
	content []byte
	// failed means that the last note could not be written.
	failed bool
}

// Write stores a note, unless the file has it. The function "note" returns it, nil if none may be
// stored, and is called while no other note is written or removed. After an error, Write returns no
// further ones until it has succeeded, because the caller logs them: a note of a newer program is
// never replaced.
func (f *File) Write(in *storage.Directory, cluster string, note func() ([]byte, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := note()
	if content == nil {
		return err
	}
	if !f.known {
		f.content, _ = in.Note(cluster) // one that cannot be read is replaced, unless a newer program wrote it
		f.known = true
	}
	if bytes.Equal(f.content, content) {
		return nil
	}
	err = in.WriteNote(cluster, content)
	again := f.failed
	f.known, f.content, f.failed = err == nil, content, err != nil
	if again {
		return nil
	}
	return err
}

// Remove removes the note, and reports whether there was one.
func (f *File) Remove(from *storage.Directory, cluster string) (removed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		f.content, err = from.Note(cluster)
		f.known = err == nil
	}
	if f.known && f.content == nil {
		return false, nil
	}
	err = from.RemoveNote(cluster)
	f.known, f.content = err == nil, nil
	return err == nil, err
}
