// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package cycle

func c() { a() }
