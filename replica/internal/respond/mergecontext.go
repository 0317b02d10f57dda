// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import "context"

// Until returns a context that ends with ctx, and when one of ends does. The caller calls
// release when it does not need the context any more. Waiting needs no goroutine.
func Until(ctx context.Context, ends []context.Context) (_ context.Context, release func()) {
	if len(ends) == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	stops := make([]func() bool, len(ends))
	for i, end := range ends {
		stops[i] = context.AfterFunc(end, cancel)
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
