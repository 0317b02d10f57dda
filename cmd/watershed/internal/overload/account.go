// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package overload

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
)

// maxName limits the bytes of a user's name that an account keeps.
const maxName = 256

// account is one user with work. An account that has none is deleted.
type account struct {
	name string
	// units are those that its requests in flight hold.
	units int
	// places are those that its watches take, and slow counts its slow lists.
	places, slow int
	// waiting has its waiting requests (*request) in the order of their arrival.
	waiting list.List
	// turn is its place among the users that wait, nil if none of its requests waits.
	turn *list.Element
}

// accountName returns the key of a user's account. A long name is replaced by its hash, so
// that users with long names do not take more memory than others.
func accountName(user string) string {
	if len(user) <= maxName {
		return user
	}
	sum := sha256.Sum256([]byte(user))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (a *account) isIdle() bool {
	return a.units == 0 && a.places == 0 && a.slow == 0 && a.waiting.Len() == 0
}

// request is one request that waits or holds units.
type request struct {
	account *account
	cost    int
	// held are the units that the request holds, 0 before it is admitted and after it has
	// ended.
	held int
	// slow means that it has returned its units before its end.
	slow bool
	// ready is closed when the request is admitted or displaced. It is nil if the request
	// never waited.
	ready chan struct{}
	// place is its place in account.waiting, nil if it does not wait.
	place *list.Element
}
