// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package exported

func OnlyForTests() {}
