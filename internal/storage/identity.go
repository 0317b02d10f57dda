// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"fmt"

	"github.com/watershed-project/watershed/wire"
)

// ErrUnidentified means that it is not known which cluster a server has. Its objects are not
// stored: after a restart they could be taken for those of another cluster at the same
// address.
var ErrUnidentified = errors.New("it is not known which cluster this is: " +
	"allow to get the namespace kube-system, whose UID identifies it")

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
