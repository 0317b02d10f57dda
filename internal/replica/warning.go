// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/watershed-project/watershed/reflector"
)

const (
	// mostWarning is how many bytes of text a warning has at most, and mostWarnings how
	// many warnings an answer has about its clusters: a client may limit its headers.
	mostWarning, mostWarnings = 256, 10
	// mostCause is how many bytes of a cluster's own words an error repeats.
	mostCause = 512
	// mostNames is how many clusters a text names, and mostName how many bytes of each.
	mostNames, mostName = 8, 64
)

// warning returns the value of a header that clients show to people.
func warning(text string) string {
	plain := strings.Map(func(r rune) rune {
		if r == '"' || r == '\\' {
			return ' '
		}
		return r
	}, shorten(text, mostWarning))
	return `299 - "` + plain + `"`
}

// shorten returns a text of at most so many bytes, in one line and without control
// characters. It ends with dots where something is missing, and never within a character.
func shorten(text string, most int) string {
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

// listed returns names as a text, of which the last ones may be only counted.
func listed(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i == mostNames {
			fmt.Fprintf(&b, " and %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(shorten(name, mostName))
	}
	return b.String()
}

// staleWarning returns what kubectl prints about a cluster that is not current.
func staleWarning(cluster string, s reflector.Status) string {
	text := fmt.Sprintf("cluster %s has been stale for %s", shorten(cluster, mostName), time.Since(s.StaleSince).Round(time.Second))
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	return warning(text)
}

// passWarnings adds the warnings of a cluster to an answer, within the same bounds as our own.
func passWarnings(h http.Header, values []string) {
	all, _ := utilnet.ParseWarningHeaders(values) // one that cannot be parsed is not passed on
	for i, w := range all {
		if i == mostWarnings {
			return
		}
		h.Add("Warning", warning(w.Text))
	}
}
