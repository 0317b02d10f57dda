// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audit

import (
	"net/url"
	"slices"
	"strings"
)

// redacted replaces a value that may be a credential.
const redacted = "REDACTED"

// secretWords are parts of the names of query parameters whose values may be credentials.
// The Kubernetes API has no parameter with such a name.
var secretWords = []string{
	"token", "bearer", "authorization", "password", "passwd", "secret", "credential", "assertion", "jwt", "apikey",
	"api_key", "api-key",
}

// requestURI returns the path and the query of a request as the client has sent them, except
// for values that may be credentials.
func requestURI(u *url.URL) string {
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if u.RawQuery == "" && !u.ForceQuery {
		return path
	}
	return path + "?" + redactQuery(u.RawQuery)
}

// redactQuery returns a query without values that may be credentials. Parameters that Go
// does not accept are examined too.
func redactQuery(query string) string {
	if !suspicious(query) {
		return query
	}
	var b strings.Builder
	b.Grow(len(query))
	for len(query) > 0 {
		end := strings.IndexAny(query, "&;")
		parameter, separator := query, ""
		if end >= 0 {
			parameter, separator = query[:end], query[end:end+1]
		}
		query = query[len(parameter)+len(separator):]
		name, value, found := strings.Cut(parameter, "=")
		b.WriteString(name)
		if found {
			b.WriteByte('=')
			if isSecret(name, value) {
				value = redacted
			}
			b.WriteString(value)
		}
		b.WriteString(separator)
	}
	return b.String()
}

// suspicious reports whether a query must be examined: it has a word, an escape that may
// hide one, or a signed token.
func suspicious(query string) bool {
	return strings.Contains(query, "%") || strings.Contains(query, "eyJ") || hasSecretWord(query)
}

// isSecret reports whether the value of a parameter may be a credential.
func isSecret(name, value string) bool {
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	} else if strings.Contains(name, "%") {
		return true
	}
	// A JSON Web Token has three parts, of which the first is a JSON object. The continue
	// tokens of a cluster are one JSON object.
	return hasSecretWord(name) || strings.HasPrefix(value, "eyJ") && strings.Count(value, ".") == 2
}

func hasSecretWord(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(text, word) })
}
