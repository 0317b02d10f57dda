// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package keyindex is the index by key of a part of a log: which frames concern an object,
// and what a reader has to know of all the others without reading them.
//
// The log of a cluster has frames of many mirrors. A [Builder] collects what is written
// until the part is large enough, and appends a block: a section for each mirror of the
// part. A section has a 32-bit hash of the key of every change, in the order of the log,
// and the places of the frames. A reader compares the hash of its key with all hashes, and
// reads the frames in which the hash occurs. So the writer need not sort. If another key has
// the same hash, its frame is read too, and has no effect.
//
// Frames that decide how the changes continue each other, such as declarations, complete
// states and relists, are listed one by one with their heads. All other batches are ordinary
// ones, which are in runs: only the first and the last head of a run are known, and a reader
// that needs more has to read the frames of the run.
//
// A block costs 4 bytes for each change, about 3 for each frame, and some 80 for each mirror
// that has changed. A builder holds the same number of bytes until the block is written.
// A block refers to the block before it, so that all blocks of a log are found from the
// last one, which ends with its own place.
//
// [Fields] reads the fields of which blocks, and the other payloads of the log, consist.
package keyindex
