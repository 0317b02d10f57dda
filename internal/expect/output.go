// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expect

import (
	"bytes"
	"sync"
)

// Output is a log, or the output of a program, that a test reads while it is written. The
// zero value is empty.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the output.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns everything written since the last Take.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Take returns everything written since the last Take, and drops it.
func (o *Output) Take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := o.text.String()
	o.text.Reset()
	return text
}
