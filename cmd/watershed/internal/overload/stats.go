// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package overload

// Stats are the present state of a [Limiter] and its counts since its creation.
type Stats struct {
	// InFlight is how many units are held, and Requests by how many requests.
	InFlight, Requests int
	// Waiting is how many requests wait.
	Waiting int
	// Watches is how many watches are open, including those that wait.
	Watches int
	// Slow is how many lists hold no units because their clients are slow.
	Slow int
	// Users is how many users have a request in flight, a waiting request or a watch.
	Users int
	// Admitted counts the requests that were admitted, watches included.
	Admitted uint64
	// Rejected counts the requests that were not.
	Rejected Rejections
}

// Rejections counts rejected requests by reason.
type Rejections struct {
	// Full counts requests that found the queue full, or that were displaced from it by a
	// request of a user with fewer.
	Full uint64
	// Late counts requests that waited for Options.MaxWait.
	Late uint64
	// Canceled counts requests whose context ended while they waited.
	Canceled uint64
	// Watches counts watches that were too many for their user or in total.
	Watches uint64
}

// Total returns the sum of all reasons.
func (r Rejections) Total() uint64 { return r.Full + r.Late + r.Canceled + r.Watches }
