// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/watershed-project/watershed/wire"
)

// Identity is everything that the content of a mirror depends on. Stored objects are used
// only for a mirror with an equal identity.
type Identity struct {
	// Cluster identifies the cluster itself: the UID and the address.
	Cluster  string `json:"cluster"`
	Group    string `json:"group,omitempty"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	// Encoding is the encoding of the objects, as [wire.Encoding] prints it.
	Encoding string `json:"encoding"`
	// Form distinguishes mirrors of the same objects in one program, such as one of their
	// metadata alone.
	Form string `json:"form,omitempty"`
	// Namespace and Selector limit the objects of the mirror.
	Namespace string `json:"namespace,omitempty"`
	Selector  string `json:"selector,omitempty"`
	// Shard is the range of a sharded list, empty for all objects.
	Shard string `json:"shard,omitempty"`
	// Transform names the dropped fields and the transforms.
	Transform string `json:"transform,omitempty"`
}

// Digest is the hash of an identity.
type Digest [sha256.Size]byte

// DigestOf returns the digest of an identity.
func DigestOf(i Identity) Digest {
	b, _ := json.Marshal(i) // a struct of strings cannot fail
	return sha256.Sum256(b)
}

// String returns the resource and the cluster, for messages.
func (i Identity) String() string {
	name := i.Resource + "." + i.Version + "." + i.Group
	if i.Namespace != "" {
		name += " in " + i.Namespace
	}
	return name + " of cluster " + i.Cluster
}

// Sealed reports whether the mirror of an identity is encrypted.
func Sealed(i Identity) bool { return i.Group == "" && i.Resource == "secrets" }

// KindOf returns the kind of the objects of a mirror by its identity.
func KindOf(i Identity) *wire.Kind {
	k := new(wire.Kind)
	k.Group, k.Version, k.Kind = i.Group, i.Version, i.Kind
	return k
}

// Replaces reports whether both identities are of the same part of a resource, in the same
// form. A mirror is taken for the successor of the other one as long as that is not open: two
// informers of one program may differ in version or transform, and then both are open.
func (i Identity) Replaces(other Identity) bool {
	return i.Group == other.Group && i.Resource == other.Resource && i.Namespace == other.Namespace &&
		i.Selector == other.Selector && i.Shard == other.Shard && i.Form == other.Form
}

// Difference returns an error that lists what differs from the stored identity of a mirror.
func (i Identity) Difference(stored Identity) error {
	was, is := reflect.ValueOf(stored), reflect.ValueOf(i)
	var all []string
	for n := range was.NumField() {
		if a, b := was.Field(n).String(), is.Field(n).String(); a != b {
			all = append(all, fmt.Sprintf("%s is %q and was %q", strings.ToLower(was.Type().Field(n).Name), b, a))
		}
	}
	return errors.New(strings.Join(all, ", "))
}
