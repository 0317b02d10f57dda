// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package twoway

type Child struct{ parent *Parent }

func (c *Child) finish() {
	c.parent.done()
	note()
}
