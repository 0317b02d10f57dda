// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"fmt"
	"sync"

	"github.com/watershed-project/watershed/cmd/watershed/internal/lru"
)

// Cache keeps the expressions and the OpenAPI documents that were used last: at most 256 expressions, which
// take some 10 MiB if they are ordinary and 64 MiB at most, and documents whose text has at most 32 MiB and
// which take less. It can be used by several goroutines.
type Cache struct {
	mu          sync.Mutex // guards the maps
	expressions *lru.Map[question, *Expression]
	documents   *lru.Map[string, document]
}

type question struct {
	text    string
	options Options
}

type document struct {
	*Document
	bytes int
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{
		expressions: lru.New[question](maxExpressions, maxExpressionBytes, (*Expression).footprint),
		documents:   lru.New[string](maxDocuments, maxDocumentBytes, func(d document) int { return d.bytes }),
	}
}

// footprint returns about how many bytes an expression takes: most of them are for its operations.
func (e *Expression) footprint() int { return 12<<10 + len(e.text) + operationBytes*e.operations }

// Compile returns what [Compile] does. Errors are not kept.
func (c *Cache) Compile(text string, o Options) (*Expression, error) {
	if len(text) > MaxLength {
		return Compile(text, o)
	}
	c.mu.Lock()
	e, ok := c.expressions.Get(question{text, o})
	c.mu.Unlock()
	if ok {
		return e, nil
	}
	e, err := Compile(text, o)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expressions.Put(question{text, o}, e)
	return e, nil
}

// Document returns the document with a hash, which API servers have in the addresses of their documents.
// If it is not known, read is called for its text. Clusters that have the same version of a document
// share it, so their schemas are the same and are checked once.
func (c *Cache) Document(hash string, read func() ([]byte, error)) (*Document, error) {
	c.mu.Lock()
	known, ok := c.documents.Get(hash)
	c.mu.Unlock()
	if ok {
		return known.Document, nil
	}
	text, err := read()
	if err != nil {
		return nil, fmt.Errorf("OpenAPI document %s: %w", hash, err)
	}
	d, err := ParseDocument(text)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Somebody else may have read it meanwhile.
	if known, ok := c.documents.Get(hash); ok {
		return known.Document, nil
	}
	c.documents.Put(hash, document{d, len(text)})
	return d, nil
}
