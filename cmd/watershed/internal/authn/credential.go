// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// maxToken is the length in bytes of the longest token that is checked.
	maxToken = 16 << 10
	// bearerProtocol is the beginning of the WebSocket subprotocol that carries a token,
	// encoded as base64url without padding.
	bearerProtocol = "base64url.bearer.authorization.k8s.io."
)

var errMalformed = errors.New("malformed credentials")

// BearerToken returns the bearer token of a request, and false if there is none or more than
// one, or if it is malformed.
func BearerToken(r *http.Request) (string, bool) {
	t, err := token(r)
	return t, err == nil && t != ""
}

// token returns the bearer token of a request, "" if it has none, or errMalformed. It
// follows kube-apiserver: the scheme is compared without case, the token ends at the next
// space, and a WebSocket request without a token in the header may carry it as a
// subprotocol. It is stricter in two respects: several Authorization headers are refused,
// because a proxy may have checked another one, and so are tokens that are longer than
// maxToken or contain anything but printable ASCII.
func token(r *http.Request) (string, error) {
	headers := r.Header["Authorization"]
	if len(headers) > 1 {
		return "", errMalformed
	}
	if len(headers) == 1 {
		parts := strings.SplitN(strings.TrimSpace(headers[0]), " ", 3)
		if len(parts) > 1 && strings.EqualFold(parts[0], "bearer") && parts[1] != "" {
			return wellFormed(parts[1])
		}
	}
	return subprotocolToken(r)
}

// subprotocolToken returns the token in the subprotocols of a WebSocket request. As in
// kube-apiserver there must be another subprotocol, which the server can select.
func subprotocolToken(r *http.Request) (string, error) {
	if !isWebSocket(r) {
		return "", nil
	}
	encoded, tokens, others := "", 0, 0
	for _, header := range r.Header["Sec-Websocket-Protocol"] {
		for protocol := range strings.SplitSeq(header, ",") {
			if t, ok := strings.CutPrefix(strings.TrimSpace(protocol), bearerProtocol); ok {
				encoded = t
				tokens++
			} else {
				others++
			}
		}
	}
	switch {
	case tokens == 0 || tokens == 1 && encoded == "":
		return "", nil
	case tokens > 1 || others == 0 || len(encoded) > base64.RawURLEncoding.EncodedLen(maxToken):
		return "", errMalformed
	}
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", errMalformed
	}
	return wellFormed(string(decoded))
}

func isWebSocket(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	return slices.ContainsFunc(r.Header["Connection"], func(header string) bool {
		return strings.Contains(strings.ToLower(header), "upgrade")
	})
}

// wellFormed returns the token or errMalformed. A space must not pass: the API server
// that reviews the token would check only the part before it.
func wellFormed(token string) (string, error) {
	if token == "" || len(token) > maxToken {
		return "", errMalformed
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", errMalformed
		}
	}
	return token, nil
}

// expiry returns exp of a JWT, or zero if the token is not a JWT or has none. The
// signature is not verified: the result may only shorten the use of a token.
func expiry(token string) time.Time {
	payload, ok := payloadOf(token)
	if !ok {
		return time.Time{}
	}
	var claims struct {
		Exp json.Number `json:"exp"`
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if err := d.Decode(&claims); err != nil {
		return time.Time{}
	}
	seconds, err := claims.Exp.Float64()
	if err != nil || seconds <= 0 || seconds > 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// payloadOf returns the claims of a JWT as they are encoded, false if the token is not a JWT. The
// signature is not verified.
func payloadOf(token string) ([]byte, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	return payload, err == nil
}
