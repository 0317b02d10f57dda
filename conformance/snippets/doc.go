// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package snippets runs the console snippets of the documentation as a reader would, and compares
// what they print with what the page shows.
//
// A snippet is a code block of the language console. A line that begins with "$ " is a command,
// which goes on in the next line if it ends with a backslash. The lines below it, up to the next
// command, are what it prints. All commands of a page run in one shell. A command must succeed,
// unless its comment says "# exits with N". A command whose comment is "# keep it running" runs until
// the end of the page; the commands below it are typed in a second terminal. A block of Go whose first line is a
// comment with the path of a file, such as "// before/main.go", is a file that the reader writes.
//
// What a page shows and what a command prints are compared line by line. "…" stands for any
// text, and on a line of its own for any lines. Ages, times, sizes, ports, versions of Kubernetes,
// numbers of two or more digits, and the random ends of the names of pods may differ, and so may
// the number of spaces. If a command has no output on the page, its output is not compared.
//
// The pages of one reader are run one after the other with the same clusters and files; see the table in
// the test. The table also has a reason for each snippet that cannot be run here. The test prints the
// number of these snippets.
//
// The clusters have a real control plane and no nodes, because there is no container engine. The
// command in the directory kind stands in for kind. The test stands in for the kubelet of pods of
// watershed: it runs them as processes, from the image that "kind load" was given, and reports them as
// ready once their readiness probe succeeds. kubectl logs shows their output, and kubectl port-forward
// leads to them. Other pods have a status, and no processes.
package snippets
