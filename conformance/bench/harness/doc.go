// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package harness holds what the benchmarks of conformance/bench share.
//
// # Processes
//
// A measurement must not include the cost of the load. So servers, load
// generators and the subjects of a [Trial] run in processes of their own, most of
// them this command started again: [Trial], [Child]. [Process] measures
// the processor time and memory of another process, [CPUTime], [RSS] and
// [Footprint] those of this one. [Server], [Replica] and [Bare] are the servers
// under test.
//
// # Load generators
//
// [Stream] writes a watch at a fixed pace, [Changes] writes pods into etcd,
// [Watchers] watches, [Query] sends requests, [SlowClients] reads slowly and
// [Simulation] serves many simulated clusters. [Expiry] makes watches expire.
//
// # Recorders
//
// [Recorder] and [Latencies] keep latencies. A latency starts when a change was
// due, not when it was sent: a reader that delays the sender is charged for that.
//
// # Reports
//
// [Report] prints a table and a line for scripts. After a complete run, it inserts the
// table with its [Figure] into docs/performance. A benchmark says what the [Column]s of
// its readings are; [AddRows] makes the table and the figure of them. Values that are named
// with [Column.As] or [Report.Value] go into a result file, and from there into the pages.
//
// # Environment
//
// Every variable whose name begins with WATERSHED_BENCH_ is internal: one process
// of a benchmark passes it to another. The others are settings for users, and
// docs/performance/README.md describes them.
package harness
