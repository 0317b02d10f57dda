// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package valuecache keeps decoded values, so that they need not be decoded again: a [Recent]
// keeps those that were decoded last, within a bound, and a [Sharer] shares the values of a
// function of the program. Objects themselves do not keep their decoded values alive.
package valuecache
