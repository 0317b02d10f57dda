// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import "net/http"

// setHeaders sets the headers that keep browsers safe. The server's responses are data: a
// browser must not run them, show them in another page, or store them. There are no CORS
// headers, so pages of other origins cannot read responses. A handler can set another
// Cache-Control; the default is that of kube-apiserver.
func setHeaders(header http.Header, strictTransport bool) {
	header["X-Content-Type-Options"] = noSniff
	header["X-Frame-Options"] = deny
	header["Content-Security-Policy"] = noContent
	header["Cache-Control"] = noCache
	if strictTransport {
		header["Strict-Transport-Security"] = oneYear
	}
}

// The values are shared between responses. They have no spare capacity, so that a handler
// that adds a value gets a copy.
var (
	noSniff   = []string{"nosniff"}
	deny      = []string{"DENY"}
	noContent = []string{"default-src 'none'; frame-ancestors 'none'"}
	noCache   = []string{"no-cache, private"}
	oneYear   = []string{"max-age=31536000"}
)
