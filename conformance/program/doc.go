// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package program builds watershed and runs it as a process, for tests. A process is a real one:
// tests kill it, stop it and end it with signals.
//
// [Binary] builds the program of the checkout once for all tests of a package, into a folder that
// [Remove] removes: call it at the end of TestMain. On Linux no process outlives the test that
// started it.
package program
