// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command etcd is etcd's own main. It is built here because etcd's module has
// replace directives, which go install refuses.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
