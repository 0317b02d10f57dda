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
// after a restart while the cluster cannot be asked: the UID that the cluster returned, the
// connection over which it did, and the resources that it served.
type lastKnown struct {
	Format   int    `json:"format"`
	Endpoint string `json:"endpoint"`
	// Connection is a digest of the configuration, see connectionOf.
	Connection string          `json:"connection"`
	UID        string          `json:"uid"`
	Resources  []kube.Resource `json:"resources"`
}

// connectionOf returns a digest of the parts of a configuration that decide which server at the
// endpoint is trusted to be the cluster, and for which user its rights were used. It is comparable between
// processes, so it contains no credentials: those of a person change every day, and a digest
// could be used to test guesses of them. It is "" if the configuration has functions, which
// cannot be compared, or its certificate authority cannot be read.
func connectionOf(cfg *rest.Config) string {
	if cfg.Dial != nil || cfg.Transport != nil || cfg.WrapTransport != nil {
		return ""
	}
	connection := struct {
		ServerName, Proxy string
		Insecure          bool
		CA                []byte
		As                rest.ImpersonationConfig
	}{ServerName: cfg.ServerName, Insecure: cfg.Insecure, CA: cfg.CAData, As: cfg.Impersonate}
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
