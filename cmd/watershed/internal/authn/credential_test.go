// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// jwt returns an unsigned token with these claims in JSON.
func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func webSocket(protocols ...string) http.Header {
	return http.Header{
		"Upgrade":                {"websocket"},
		"Connection":             {"keep-alive, Upgrade"},
		"Sec-Websocket-Protocol": protocols,
	}
}

func TestToken(t *testing.T) {
	const encoded = bearerProtocol + "YS10b2tlbg" // a-token
	both := webSocket(encoded, "v4.channel.k8s.io")
	both.Set("Authorization", "Bearer other")
	basic := webSocket(encoded + ", v4.channel.k8s.io")
	basic.Set("Authorization", "Basic YTpi")
	for name, test := range map[string]struct {
		header http.Header
		want   string
		bad    bool
	}{
		"none":               {http.Header{}, "", false},
		"usual":              {http.Header{"Authorization": {"Bearer a-token"}}, "a-token", false},
		"case":               {http.Header{"Authorization": {"bEARER a-token"}}, "a-token", false},
		"spaces around":      {http.Header{"Authorization": {"  Bearer a-token  "}}, "a-token", false},
		"more after a space": {http.Header{"Authorization": {"Bearer a-token more"}}, "a-token", false},
		"two spaces":         {http.Header{"Authorization": {"Bearer  a-token"}}, "", false},
		"no token":           {http.Header{"Authorization": {"Bearer "}}, "", false},
		"no scheme":          {http.Header{"Authorization": {"a-token"}}, "", false},
		"basic":              {http.Header{"Authorization": {"Basic YTpi"}}, "", false},
		"two headers":        {http.Header{"Authorization": {"Bearer a-token", "Bearer a-token"}}, "", true},
		"two, one empty":     {http.Header{"Authorization": {"", "Bearer a-token"}}, "", true},
		"not ASCII":          {http.Header{"Authorization": {"Bearer t\u00f6ken"}}, "", true},
		"control":            {http.Header{"Authorization": {"Bearer a\ttoken"}}, "", true},
		"longest": {
			http.Header{"Authorization": {"Bearer " + strings.Repeat("x", maxToken)}}, strings.Repeat("x", maxToken),
			false,
		},
		"too long":           {http.Header{"Authorization": {"Bearer " + strings.Repeat("x", maxToken+1)}}, "", true},
		"subprotocol":        {webSocket(encoded + ",v4.channel.k8s.io"), "a-token", false},
		"two protocol lines": {webSocket("v4.channel.k8s.io", encoded), "a-token", false},
		"only the token":     {webSocket(encoded), "", true},
		"two tokens":         {webSocket(encoded, encoded, "v4.channel.k8s.io"), "", true},
		"not base64":         {webSocket(bearerProtocol+"a*b", "v4.channel.k8s.io"), "", true},
		"padded":             {webSocket(bearerProtocol+"YS10b2tlbg==", "v4.channel.k8s.io"), "", true},
		"encoded space":      {webSocket(bearerProtocol+"YSBi", "v4.channel.k8s.io"), "", true},
		"encoded newline":    {webSocket(bearerProtocol+"YQpi", "v4.channel.k8s.io"), "", true},
		"not a WebSocket":    {http.Header{"Sec-Websocket-Protocol": {encoded, "v4.channel.k8s.io"}}, "", false},
		"header first":       {both, "other", false},
		"not bearer":         {basic, "a-token", false},
	} {
		got, err := token(&http.Request{Header: test.header})
		if got != test.want || (err != nil) != test.bad {
			t.Errorf("%s: %.40q, %v, want %.40q, malformed %t", name, got, err, test.want, test.bad)
		}
	}
}

// FuzzToken checks that a token is well formed whatever the headers are.
func FuzzToken(f *testing.F) {
	f.Add("Bearer a-token", "", "")
	f.Add("bearer  x", bearerProtocol+"YS10b2tlbg", "v4.channel.k8s.io")
	f.Add("", bearerProtocol+"YSBi, x", bearerProtocol)
	f.Add("Bearer "+jwt(`{"exp":1}`), "", "")
	f.Add("Bearer "+jwt(`{"exp":1e400}`), ",", ",,")
	f.Fuzz(func(t *testing.T, authorization, first, second string) {
		h := webSocket(first, second)
		if authorization != "" {
			h["Authorization"] = []string{authorization}
		}
		got, err := token(&http.Request{Header: h})
		if err != nil && got != "" {
			t.Fatalf("token %q with %v", got, err)
		}
		if len(got) > maxToken || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool {
			return r <= ' ' || r > '~'
		}) {
			t.Fatalf("token %q", got)
		}
		if at := expiry(got); !at.IsZero() && at.Unix() < 0 {
			t.Fatalf("expires %s", at)
		}
		issuedBy(got, "https://issuer")
	})
}

func TestExpiry(t *testing.T) {
	for token, want := range map[string]time.Time{
		jwt(`{"exp":1700000000}`):   time.Unix(1700000000, 0),
		jwt(`{"exp":1700000000.9}`): time.Unix(1700000000, 0),
		jwt(`{"exp":1.7e9}`):        time.Unix(1700000000, 0),
		jwt(`{"exp":"1700000000"}`): time.Unix(1700000000, 0),
		jwt(`{"exp":-5}`):           {},
		jwt(`{"exp":1e300}`):        {},
		jwt(`{"exp":{}}`):           {},
		jwt(`{}`):                   {},
		jwt(`[`):                    {},
		"a.b":                       {},
		"opaque":                    {},
		"a.*.c":                     {},
	} {
		if got := expiry(token); !got.Equal(want) {
			t.Errorf("%s expires %s, want %s", token, got, want)
		}
	}
}

func TestNetwork(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:5":              "192.0.2.1",
		"[::ffff:192.0.2.1]:5":     "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:5": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:6": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5":         "fe80::/64",
		"@":                        "",
	} {
		if got := network(remote); got != want {
			t.Errorf("network(%s) = %s, want %s", remote, got, want)
		}
	}
}
