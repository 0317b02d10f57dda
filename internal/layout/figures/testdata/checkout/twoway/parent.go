// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package twoway has two files that refer to each other.
package twoway

type Parent struct{ child *Child }

func (p *Parent) done() { note() }
