// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package budget keeps the memory of the process within a limit. It measures the memory that
// is in use after each garbage collection and, near the limit, gives up the less important uses
// first: caches, then history, then further resources, then further objects. So a process
// whose clusters have become too large goes on with a part of them and says so, and is not
// killed and restarted over and over.
package budget
