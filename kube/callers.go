// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// ErrIndistinctCallers means that the server at the address of a cluster does not tell callers
// apart by their own tokens, or that nobody can know: a proxy adds credentials to every request,
// or the connection is not encrypted. Each caller would have the rights of the proxy's user.
var ErrIndistinctCallers = errors.New("callers are not told apart by their tokens")

const (
	// callersAge is how long a good result of a check of the server is used. If further checks
	// have no result, it is used until callersGrace.
	callersAge, callersGrace = time.Minute, 5 * time.Minute
	// callersPause is how long after a check without a good result there is no other.
	callersPause = time.Second
	// callersTimeout is how long a check may take.
	callersTimeout = 5 * time.Second
	// maxCallersAnswer limits the response to a check, in bytes.
	maxCallersAnswer = 64 << 10

	selfReviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	anonymousUser  = "system:anonymous"
)

// callersCheck remembers whether a server tells callers apart. It belongs to one connection, so
// another address or other credentials are checked anew. A server can be replaced by a proxy
// behind the same address, so a result does not last.
type callersCheck struct {
	// send checks the server once.
	send func(context.Context) error
	// turn has a token while a caller uses the fields below.
	turn chan struct{}
	// good is when a check last succeeded, tried when the last one ended, and err its result.
	good, tried time.Time
	err         error
}

func newCallersCheck(send func(context.Context) error) *callersCheck {
	return &callersCheck{send: send, turn: make(chan struct{}, 1)}
}

// check returns the result of the last check, or of another one if that is too old. Others wait
// for the caller that checks.
func (k *callersCheck) check(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if time.Since(k.good) < callersAge {
		return nil
	}
	if time.Since(k.tried) >= callersPause {
		asked, cancel := context.WithTimeout(ctx, callersTimeout)
		defer cancel()
		began := time.Now()
		err := k.send(asked)
		if err != nil && ctx.Err() != nil {
			return err // the caller has left, which says nothing about the server
		}
		k.tried, k.err = time.Now(), err
		switch {
		case err == nil:
			k.good = began
		case errors.Is(err, ErrIndistinctCallers):
			k.good = time.Time{}
		}
	}
	if time.Since(k.good) < callersGrace {
		return nil
	}
	return k.err
}

// CheckCallers returns nil if the server authenticates callers by the tokens that they send, over
// an encrypted connection. It sends a request without a token and one with a random token, over a
// connection without credentials: the server must refuse both, or know their user as anonymous. If
// it does not, the error wraps [ErrIndistinctCallers]. Other errors say that this is not known.
//
// A good result is used for a minute, and for five minutes if the server does not answer further
// checks. There is at most one check at once, and one per second.
func (c *Cluster) CheckCallers(ctx context.Context) error {
	if c.root.Scheme != "https" {
		return fmt.Errorf("cluster %s: %w: its address is not one of https", c.name, ErrIndistinctCallers)
	}
	return c.callers.check.check(ctx)
}

// checkCallers checks the server once.
func (c *Cluster) checkCallers(ctx context.Context) error {
	for _, try := range []struct{ with, authorization string }{
		{"without a token", ""},
		{"with a made-up token", "Bearer watershed-check-" + rand.Text()},
	} {
		code, anonymous, err := c.reviewSelf(ctx, try.authorization)
		switch {
		case err != nil:
			return fmt.Errorf("cluster %s: check of callers: %w", c.name, err)
		case code == http.StatusUnauthorized, anonymous:
		case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
			return fmt.Errorf("cluster %s: check of callers: the server answers %d", c.name, code)
		default:
			return fmt.Errorf("cluster %s: %w: its address answers a request %s with %d, as a proxy does that adds credentials of its own", c.name, ErrIndistinctCallers, try.with, code)
		}
	}
	return nil
}

// reviewSelf asks the server, over a connection without credentials, who the user of a request is.
// It returns the code of the response, and whether the user is the anonymous one.
func (c *Cluster) reviewSelf(ctx context.Context, authorization string) (code int, anonymous bool, err error) {
	transport, err := c.callers.transport(c.config, false)
	if err != nil {
		return 0, false, err
	}
	u, err := c.below(&url.URL{Path: selfReviewPath})
	if err != nil {
		return 0, false, err
	}
	body := strings.NewReader(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return 0, false, err
	}
	r.Header.Set("Accept", runtime.ContentTypeJSON)
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	r.Header.Set("User-Agent", rest.DefaultKubernetesUserAgent())
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	resp, err := exchange(transport, r)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxCallersAnswer))
	return resp.StatusCode, isAnonymous(resp.StatusCode, text), err
}

// isAnonymous reports whether the response to a self review names the anonymous user: as the
// result, or as the user that may not create one.
func isAnonymous(code int, body []byte) bool {
	switch code {
	case http.StatusForbidden:
		var status struct{ Message string }
		return json.Unmarshal(body, &status) == nil && strings.Contains(status.Message, `User "`+anonymousUser+`"`)
	case http.StatusOK, http.StatusCreated:
		var review struct {
			Status struct{ UserInfo struct{ Username string } }
		}
		return json.Unmarshal(body, &review) == nil && review.Status.UserInfo.Username == anonymousUser
	}
	return false
}
