// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package warning makes the Warning headers of responses, and bounds the texts that a
// cluster or a client has a part in: they make no header or message long, and break none.
package warning

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// maxWarning is how many bytes of text a warning has at most.
	maxWarning = 256
	// Limit is how many warnings a response has about its clusters at most: clients limit
	// the size of headers.
	Limit = 10
	// MaxCause is how many bytes of an error of a cluster a response repeats at most.
	MaxCause = 512
	// maxNames is how many clusters a text names at most.
	maxNames = 8
	// MaxName is how many bytes of the name of a cluster a text has at most.
	MaxName = 64
)

// Add adds Warning headers with texts, which clients show to people.
func Add(h http.Header, texts ...string) {
	for _, text := range texts {
		h.Add("Warning", value(text))
	}
}

// value returns the value of a Warning header, with quotes escaped as kube-apiserver does.
func value(text string) string { return `299 - "` + escaped.Replace(Shorten(text, maxWarning)) + `"` }

var escaped = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// Shorten returns a text of at most most bytes, in one line and without control
// characters. It ends with dots where something is missing, and never within a character.
func Shorten(text string, most int) string {
	const dots = "..."
	cut := len(text) > 4*most // a character has four bytes at most
	if cut {
		text = text[:4*most]
	}
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) <= most && !cut {
		return text
	}
	end := min(len(text), most-len(dots))
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + dots
}

// Names returns names as a text. If there are many, it counts the last ones.
func Names(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i == maxNames {
			fmt.Fprintf(&b, " and %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(Shorten(name, MaxName))
	}
	return b.String()
}

// Pass adds the Warning headers of a cluster to those of a response, within the same
// bounds as our own.
func Pass(h http.Header, values []string) {
	all, _ := utilnet.ParseWarningHeaders(values) // one that cannot be parsed is dropped
	for _, w := range all[:min(len(all), Limit)] {
		Add(h, w.Text)
	}
}
