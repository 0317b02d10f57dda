// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/watershed-project/watershed/replica/internal/status"
)

// token is where a list continues. It is that of kube-apiserver with the number of objects
// that remain, so that they are not counted for every page.
type token struct {
	APIVersion string `json:"v"`
	// Version is that of the state, -1 for the newest.
	Version int64 `json:"rv"`
	// Start is the key after the last one that was sent, see [View.start].
	Start string `json:"start"`
	// Left is how many objects remain, 0 if that is not known.
	Left int `json:"left,omitempty"`
	// Of is the name of the list, see [View.list]: keys mean something else in another.
	Of string `json:"of,omitempty"`
	// Seal binds the token to a caller, see [Seal].
	Seal string `json:"seal,omitempty"`
}

const tokenVersion = "meta.k8s.io/v1"

// text returns the token for a client, with a seal.
func (t token) text(seal Seal) string {
	t.Seal = seal.sum(t)
	return base64.RawURLEncoding.EncodeToString(t.encode())
}

// encode returns the token as JSON.
func (t token) encode() []byte {
	t.APIVersion = tokenVersion
	raw, err := json.Marshal(t)
	if err != nil {
		return nil // strings and numbers can be written
	}
	return raw
}

// tokenOf returns the continue token of a list, which must not have a version besides. A
// token of another caller, of another list, or of a server that has restarted is expired:
// the client has to begin its list again.
func tokenOf(opts *internalversion.ListOptions, of string, seal Seal) (token, error) {
	t, err := parseToken(opts.Continue, of)
	switch {
	case err != nil:
	case opts.ResourceVersion != "" && opts.ResourceVersion != "0":
		err = apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	case !seal.fits(t):
		err = status.Expired(status.ContinueForeign, "")
	}
	return t, err
}

// parseToken parses the continue token of a list. A client may send anything.
func parseToken(text, of string) (token, error) {
	var t token
	err := func() error {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return fmt.Errorf("continue key is not valid: %w", err)
		}
		if err := json.Unmarshal(raw, &t); err != nil {
			return fmt.Errorf("continue key is not valid: %w", err)
		}
		key := t.Start
		if !strings.HasPrefix(key, "/") {
			key = "/" + key
		}
		switch {
		case t.APIVersion != tokenVersion:
			return fmt.Errorf("continue key is not valid: server does not recognize this encoded version %s",
				t.APIVersion)
		case t.Version == 0:
			return errors.New("continue key is not valid: incorrect encoded start resourceVersion (version " +
				"meta.k8s.io/v1)")
		case t.Start == "":
			return errors.New("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")
		case path.Clean(key) != key:
			return fmt.Errorf("continue key is not valid: %s", t.Start)
		case t.Of != of:
			return errors.New("continue key is not valid: it belongs to another list")
		}
		return nil
	}()
	if err != nil {
		return t, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
	}
	t.Left = max(t.Left, 0)
	return t, nil
}

// ContinueVersion returns the version of a continue token of a list of one cluster, 0 if it has none.
func ContinueVersion(text string) uint64 {
	if t, err := parseToken(text, ""); text != "" && err == nil {
		return uint64(max(t.Version, 0))
	}
	return 0
}

// tokenKey returns the key that a continue token begins after.
func tokenKey(start string) string { return strings.TrimSuffix(start, "\x00") }
