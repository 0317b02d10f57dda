// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package config is the configuration of the program: settings that are a key of a file, a
// flag and an environment variable at once.
//
// A program declares each setting once, in a [Set]. The declaration has the key, the flag, the
// default, the meaning and the bounds. The help text, the JSON schema of the file, the table in
// the documentation and the checks are made from it. [Set.Load] determines each value: it takes
// the flag, else the environment variable, else the file, else the default.
//
// The file is YAML. A key that does not exist, a value of the wrong type and a value that is
// out of bounds are errors with the line and the column, and [Set.Load] returns all of them at
// once. A program reads the file again with a new Set, and [Set.Changes] returns the keys whose
// values differ. [Follow] calls a function when the content of the file has changed.
//
// # Guarantees
//
// An error never changes a Set that is in use: a new file is loaded into a new Set. [Follow]
// notices a change within two periods. It also notices that the file is a link and leads to
// another file now, as in a mounted ConfigMap. It uses a changed file only after the file has
// stayed the same for 200 ms, because a program may still be writing it.
//
// # What blocks
//
// [Follow] runs until its context ends. Everything else returns at once.
//
// # Bounds and ownership
//
// A file may have 1 MiB. A Set belongs to one goroutine until it is loaded, and is not modified
// after that.
package config
