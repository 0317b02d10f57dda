// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

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
	// Cluster identifies the cluster itself, see [ClusterIdentity].
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
	// Transform names the dropped fields and the transforms, see [TransformIdentity].
	Transform string `json:"transform,omitempty"`
}

// ErrUnidentified means that it is not known which cluster a server has. Its objects are not
// stored: after a restart they could be taken for those of another cluster at the same
// address.
var ErrUnidentified = errors.New("it is not known which cluster this is: allow to get the namespace kube-system, whose UID identifies it")

// ClusterIdentity returns the identity of a cluster: the UID of its namespace kube-system, and
// the address of its server, because a cluster that was restored from the backup of another has
// the same UID. The certificate authority is not a substitute for the UID: several clusters can
// have the same one, and a cluster that is made anew can keep it. The error is
// [ErrUnidentified] if uid is "".
func ClusterIdentity(uid, address string) (string, error) {
	if uid == "" {
		return "", ErrUnidentified
	}
	return uid + " at " + address, nil
}

// TransformIdentity returns the identity of what is done with objects before they are stored:
// the fields that are dropped, and the name of the transforms, which has their version.
func TransformIdentity(drop wire.Fields, name string) string { return fmt.Sprintf("%v %s", drop, name) }

// digest is the hash of an identity.
type digest [sha256.Size]byte

// digestOf returns the digest of an identity.
func digestOf(i Identity) digest {
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

// replaces reports whether both identities are of the same part of a resource, in the same
// form. A mirror is taken for the successor of the other one as long as that is not open: two
// informers of one program may differ in version or transform, and then both are open.
func replaces(i, other Identity) bool {
	return i.Group == other.Group && i.Resource == other.Resource && i.Namespace == other.Namespace &&
		i.Selector == other.Selector && i.Shard == other.Shard && i.Form == other.Form
}

// sealed reports whether the mirror of an identity is encrypted.
func sealed(i Identity) bool { return i.Group == "" && i.Resource == "secrets" }

// difference returns an error that lists what differs between the stored and the current identity
// of a mirror.
func difference(stored, current Identity) error {
	was, is := reflect.ValueOf(stored), reflect.ValueOf(current)
	var all []string
	for n := range was.NumField() {
		if a, b := was.Field(n).String(), is.Field(n).String(); a != b {
			all = append(all, fmt.Sprintf("%s is %q and was %q", strings.ToLower(was.Type().Field(n).Name), b, a))
		}
	}
	return errors.New(strings.Join(all, ", "))
}

// kindOf returns the kind of the objects of a mirror by its identity.
func kindOf(i Identity) *wire.Kind {
	k := new(wire.Kind)
	k.Group, k.Version, k.Kind = i.Group, i.Version, i.Kind
	return k
}

// Reason is why a stored mirror cannot be used.
type Reason string

// The reasons of a [Rejection].
const (
	// Absent means that nothing is stored for the identity.
	Absent Reason = "absent"
	// Mismatched means that the mirror was stored with another identity. Its files stay as
	// long as the past does.
	Mismatched Reason = "mismatched"
	// Damaged means that a checksum is wrong, or that a part is missing.
	Damaged Reason = "damaged"
	// Newer means that a newer version of this program wrote the files.
	Newer Reason = "newer"
	// Locked means that the mirror is encrypted and the key is not available.
	Locked Reason = "locked"
	// Unreadable means that the file system returned an error.
	Unreadable Reason = "unreadable"
	// Incomplete means that changes are missing at the moment of a [Cluster.At].
	Incomplete Reason = "incomplete"
)

// Rejection is the error for a mirror whose stored state cannot be used. The caller lists
// the resource instead.
type Rejection struct {
	Identity Identity
	Reason   Reason
	// Err is the cause. It may be nil.
	Err error
}

// Error implements error.
func (r *Rejection) Error() string {
	text := fmt.Sprintf("stored %v is %s", r.Identity, r.Reason)
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (r *Rejection) Unwrap() error { return r.Err }
