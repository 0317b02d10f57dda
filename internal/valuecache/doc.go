// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package valuecache keeps decoded values, so that they need not be decoded again: a [Cache]
// keeps the values that were decoded last, and those that are read again before holding them has
// cost more than decoding them. A [Sharer] shares the values of a function of the program. Objects
// themselves do not keep their decoded values alive.
//
// # What blocks
//
// A read of a kept value takes no lock. A read that decodes, or that makes a value kept, takes
// the lock of the cache for less than a microsecond. Sweeps do not hold that lock while they
// visit values. A sweep runs in a timer's goroutine; [Cache.Suspend] stops the timer, waits for
// the sweep, and drops all values.
package valuecache
