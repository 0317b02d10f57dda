// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package wiretest has what the tests of package wire, and of the packages that read and pack
// its objects, share: pods of a realistic size, bodies as an API server encodes them, and
// comparisons of an object with the value that apimachinery decodes.
package wiretest
