// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
)

func TestInCluster(t *testing.T) {
	dir := t.TempDir()
	ca, _ := certificate(t)
	other, _ := certificate(t)
	var log logBuffer
	d := directory.Poll(directory.NewInCluster("here", &directory.InClusterOptions{Logger: log.logger()}), testInterval)
	token := write(t, []byte("token"), dir, "token")
	var mounted atomic.Bool // the files of the service account
	directory.LoadInCluster(d, func() (*rest.Config, error) {
		if !mounted.Load() {
			return nil, errors.New("no token yet")
		}
		return &rest.Config{
			Host:            "https://here",
			BearerToken:     "token",
			BearerTokenFile: token,
			TLSClientConfig: rest.TLSClientConfig{CAFile: dir + "/ca.crt"},
		}, nil
	})
	seen := follow(t, d)
	seen.quiet("there is no token")
	if n := strings.Count(log.String(), "no token yet"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	mounted.Store(true)
	seen.quiet("there is no authority")
	if n := strings.Count(log.String(), "ca.crt"); n != 1 ||
		!strings.Contains(log.String(), `source="in-cluster here"`) {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	write(t, ca, dir, "ca.crt")
	was := seen.names("here")["here"]
	if string(was.Config.CAData) != string(ca) || was.Config.BearerTokenFile != token {
		t.Errorf("configuration %v", was.Config)
	}
	write(t, []byte("another"), token)
	seen.quiet("client-go reads the token")
	write(t, nil, dir, "ca.crt")
	seen.quiet("the authority is being written")
	write(t, other, dir, "ca.crt")
	seen.until("another authority", func(m map[string]fleet.Entry) bool {
		return string(m["here"].Config.CAData) == string(other)
	})

	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := directory.NewInCluster("here", nil).Follow(ctx, nil); !errors.Is(err, rest.ErrNotInCluster) {
		t.Errorf("outside: %v", err)
	}
	if err := directory.NewInCluster("a/b", nil).Follow(t.Context(), nil); err == nil {
		t.Error("a name with a slash")
	}
}
