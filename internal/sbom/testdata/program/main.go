// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command program has a module besides its own.
package main

import "github.com/tidwall/btree"

func main() { println(new(btree.Map[string, int]).Len()) }
