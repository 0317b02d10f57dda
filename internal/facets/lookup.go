// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"iter"
	"strconv"
	"strings"

	"github.com/watershed-project/watershed/wire"
)

// Objects is a state of a resource, such as a [store.Snapshot] of bytes.
type Objects interface {
	Having(name string, values []string, prefix, after string) (iter.Seq2[string, *wire.Object], bool)
	Unordered() iter.Seq2[string, *wire.Object]
}

// namePath is the path of the name, which every object has without a record.
const namePath = "metadata.name"

// Lookup yields the objects of which the facet at a path is a text, or a list with it, and those
// of which it is unknown. The path may be "metadata.name". A store of at least 500 objects makes
// hash columns of the facet at the second request, as for labels: see [store.Snapshot.Having].
// Before, and if more than an eighth of the objects have the text, all objects are visited. An
// object is yielded once.
func Lookup(s Objects, path, text string) iter.Seq2[*wire.Object, Answer] {
	l := lookup{path: path, text: text, encoded: string(appendText(nil, []byte(text)))}
	columns := 1
	if strings.Contains(path, "[*]") {
		columns = attributes
	}
	var found []iter.Seq2[string, *wire.Object]
	for at := range columns {
		name := attributePrefix + strconv.Itoa(at) + path
		if some, few := s.Having(name, []string{text, manyElements, unknownValue}, "", ""); few {
			found = append(found, some)
		}
	}
	if len(found) < columns {
		found = []iter.Seq2[string, *wire.Object]{s.Unordered()}
	}
	return func(yield func(*wire.Object, Answer) bool) {
		seen := map[*wire.Object]struct{}{}
		for i, some := range found {
			for _, o := range some {
				answer := l.of(o)
				if answer == No {
					continue
				}
				if _, twice := seen[o]; twice {
					continue
				}
				if i < len(found)-1 {
					seen[o] = struct{}{}
				}
				if !yield(o, answer) {
					return
				}
			}
		}
	}
}

// lookup compares a facet with a text. It remembers the facet in the plan of the last object.
type lookup struct {
	path, text, encoded string
	plan                *Plan
	facet               Facet
	has                 bool
}

func (l *lookup) of(o *wire.Object) Answer {
	if l.path == namePath {
		return answerOf(o.Name() == l.text)
	}
	r := Of(o)
	if r == nil {
		return Unknown
	}
	if p := r.Plan(); p != l.plan {
		l.plan = p
		l.facet, l.has = p.Facet(l.path)
	}
	if !l.has {
		return Unknown
	}
	b := r.encoded(&l.facet)
	switch b[0] {
	case tagUnknown:
		return Unknown
	case tagList:
		n := b[1]
		b = b[2:]
		for range n {
			end := next(b)
			if b[:end] == l.encoded {
				return Yes
			}
			b = b[end:]
		}
		return No
	}
	return answerOf(b == l.encoded)
}

func answerOf(yes bool) Answer {
	if yes {
		return Yes
	}
	return No
}

// attributePrefix marks attributes that are facets. No label begins with it. After it come the
// place in a list and the path.
const attributePrefix = "\x00"

const (
	// attributes is how many elements of a list have a column.
	attributes = 2
	// manyElements and unknownValue are the attributes of objects that must be looked at
	// whatever the text.
	manyElements = "\x00many"
	unknownValue = "\x00unknown"
)

// Attribute returns the attribute of an object that [Lookup] asks a store for, or a label.
func Attribute(o *wire.Object, name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, attributePrefix)
	if !ok || len(rest) < 2 {
		return o.Label(name)
	}
	at, path := int(rest[0]-'0'), rest[1:]
	if path == namePath {
		return o.Name(), true
	}
	value, known := Of(o).Value(path)
	if !known {
		return unknownValue, true
	}
	if all, isList := value.([]any); isList {
		switch {
		case at >= len(all):
			return "", false
		case at == attributes-1 && len(all) > attributes:
			return manyElements, true
		}
		value = all[at]
	} else if at > 0 {
		return "", false
	}
	text, ok := value.(string)
	return text, ok
}
