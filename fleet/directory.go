// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
)

// Directory lists the clusters of a [Fleet] and reports changes of that list. Package
// fleet/directory has the implementations: kubeconfig contexts, a directory of
// kubeconfigs, Cluster API, ClusterProfiles and others.
type Directory interface {
	// Follow calls notify with all clusters as soon as they are known, and again
	// whenever one of them has changed, until ctx ends. Then it returns nil. The
	// entries are sorted by name, and each name occurs once. Follow calls notify from
	// one goroutine at a time and never after it has returned. Notify may block for a
	// moment and owns the slice and everything in it.
	//
	// A directory that cannot be read keeps its last list: it logs the error and
	// retries, and does not call notify, so that no cluster is removed because of a
	// read error. Follow returns an error only if a retry cannot help.
	Follow(ctx context.Context, notify func([]Entry)) error
}

// Sources is a [Directory] that consists of several sources. A [Fleet] reports their states,
// and knows from them whether a cluster that it does not have may exist: see [Fleet.Known].
type Sources interface {
	Directory
	// Sources returns the states of the sources that are configured. It is safe for
	// concurrent use and does not block.
	Sources() []SourceState
}

// SourceState is the state of a source of clusters.
type SourceState struct {
	// Name describes the source for people.
	Name string
	// Reported is whether the source has reported its clusters since it was configured, and
	// the fleet has them. Before that, clusters may exist that the fleet does not have.
	Reported bool
	// Clusters is how many clusters of the source are used.
	Clusters int
	// Err is why the source cannot be read at present, nil if that is not known or it can be.
	Err error
}

// Entry is one cluster of a [Directory].
type Entry struct {
	// Name is the cluster's name in the fleet. See [ValidateName].
	Name string
	// Config is the configuration to connect with. It is nil if Err is not.
	Config *rest.Config
	// Access identifies the server and the credentials of Config without revealing
	// them. It changes when either changes, except for credentials that client-go
	// renews by itself: a token file, or the output of a credential plugin. [Access]
	// computes it. It is empty if Err is not nil.
	Access string
	// Labels describe the cluster for selectors of clusters, see [Member.Labels]. Keys and
	// values follow the rules for labels of objects.
	Labels map[string]string
	// Scope limits the objects that are mirrored from the cluster. Nil means
	// [Options.Scope].
	Scope *Scope
	// Shadowed names the sources that have another cluster of this name. Those clusters
	// are left out.
	Shadowed []string
	// Err is the reason why a known cluster cannot be connected to, such as
	// credentials that cannot be read. A cluster that was connected before stays
	// connected with its previous credentials.
	Err error
}

// maxName is the most bytes that the name of a cluster may have. A namespace and an object on a
// hub have at most 317 together.
const maxName = 512

// ValidateName returns an error if a cluster cannot have this name. Names are parts of paths and
// labels of metrics: a name must not be empty, ".", ".." or longer than 512 bytes, must be valid
// UTF-8, and must not contain a slash or characters without a glyph, such as control characters.
func ValidateName(name string) error {
	switch {
	case name == "":
		return errors.New("cluster name is empty")
	case name == ".", name == "..":
		return fmt.Errorf("cluster name %q is a path", name)
	case len(name) > maxName:
		return fmt.Errorf("cluster name %.40q... has %d bytes: it may have %d", name, len(name), maxName)
	case strings.Contains(name, "/"):
		return fmt.Errorf("cluster name %q contains a slash", name)
	case !utf8.ValidString(name):
		return fmt.Errorf("cluster name %q is not valid UTF-8", name)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return fmt.Errorf("cluster name %q contains a character without a glyph", name)
	}
	return nil
}

// Scope limits which objects of a cluster are copied: those of a namespace, or those that a label
// selector matches. The zero value is the whole cluster.
type Scope = selection.Scope

// Access returns the usual value of [Entry.Access]: a digest of the fields of cfg that
// decide where requests are sent and with which credentials. Functions and the content
// of files are not part of it. With a token file, Config.BearerToken is not part of it
// either: client-go reads the file again every minute, so a new token needs no new
// connection. Digests of different processes are not comparable.
func Access(cfg *rest.Config) (string, error) { return upstream.Access(cfg) }
