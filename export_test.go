// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"fmt"
	"iter"
	"strings"

	"github.com/watershed-project/watershed/internal/engine"
)

// Settle packs all current objects densely, without waiting for them to be old.
func Settle[T any](i *Informer[T]) { i.engine.Current().Settle() }

// Indexes returns the number of indexes of an informer's engine.
func Indexes[T any](i *Informer[T]) int {
	n := 0
	i.engine.Inspect(func(_ *engine.Life, parts iter.Seq[engine.Part]) {
		for p := range parts {
			if strings.Contains(fmt.Sprintf("%T", p), ".indexPart[") {
				n++
			}
		}
	})
	return n
}

// Dictionaries returns the number of kinds that have a dictionary, and the bytes that
// dictionaries and samples take.
func (p *Packing) DictionaryBytes() int64 { return p.shared.DictionaryBytes() }
