// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package objectlog has the options of logs of objects. In such a log, a reader can wait for
// changes of objects with a label or a field, see [ByLabel] and [HasField], and a change has the
// size of the states that it keeps from being freed. [Trim] keeps several logs within one bound.
package objectlog
