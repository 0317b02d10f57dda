// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command program is not a package that others import.
package main

func main() {}
