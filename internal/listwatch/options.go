// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package listwatch

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/reflector"
)

// ListOptions returns the query of a list.
func ListOptions(opts reflector.ListOptions) metav1.ListOptions {
	options := metav1.ListOptions{Limit: opts.Limit, Continue: opts.Continue, ResourceVersion: opts.Version}
	if opts.NotOlder {
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	return options
}

// nothing is a field selector that selects no objects: a name begins with a letter or a
// digit.
const nothing = "metadata.name=-"

// WatchOptions returns the query of a watch. It always requests bookmarks.
func WatchOptions(opts reflector.WatchOptions) metav1.ListOptions {
	options := metav1.ListOptions{Watch: true, AllowWatchBookmarks: true, ResourceVersion: opts.Version}
	if opts.Timeout > 0 {
		seconds := int64((opts.Timeout + time.Second - 1) / time.Second)
		options.TimeoutSeconds = &seconds
	}
	if opts.InitialEvents {
		yes := true
		options.SendInitialEvents = &yes
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	if opts.Nothing {
		options.FieldSelector = nothing
	}
	return options
}
