// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

const attackerVariable = "WATERSHED_ATTACK"

func attackFromChild(string) {}
