// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

// forget makes the interner of a plan empty, as if enough other values had been interned.
func (p *Plan) forget() {
	p.intern.mu.Lock()
	defer p.intern.mu.Unlock()
	p.intern.values, p.intern.tuples = generations[*interned]{}, generations[*tuple]{}
}

// Forget is for the tests of other packages.
func (p *Plan) Forget() { p.forget() }
