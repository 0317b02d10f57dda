// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package snippets runs the console snippets of the documentation as a reader would, and compares
// what they print with what the page shows.
//
// A snippet is a code block of the language console. A line that begins with "$ " is a command;
// the lines below it, up to the next command, are what it prints. All commands of a page run in
// one shell. A command must succeed, unless its comment says "# exits with N". A command whose
// comment is "# keep it running" runs until the end of the page, and its output must come within
// a minute; the commands below it are typed in a second terminal.
//
// What a page shows and what a command prints are compared line by line. "…" stands for any
// text, and on a line of its own for any lines. Ages, times, sizes, ports, versions of Kubernetes,
// numbers of two or more digits, and the random ends of the names of pods may differ, and so may
// the number of spaces. If a
// command has no output on the page, its output is not compared.
//
// A page that cannot be run here has a reason in the test, which prints how many snippets that
// leaves out. Clusters are real, but not made by kind, which needs a container engine: command
// kind below this folder stands in for it.
package snippets
