// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/command/serve"
	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
)

// Tests do not wait two seconds for each change of a file.
func init() { serve.ReloadPeriod = 50 * time.Millisecond }

// configured is a server with a configuration file.
type configured struct {
	t       *testing.T
	path    string
	values  map[string]any
	state   *state.Dir
	log     *output
	client  *http.Client
	ended   chan error
	cancel  context.CancelFunc
	stopped func() error
}

// fileOf returns a file with values by the paths of their keys.
func fileOf(t *testing.T, values map[string]any) string {
	t.Helper()
	root := map[string]any{"apiVersion": config.APIVersion, "kind": config.Kind}
	for path, value := range values {
		at := root
		parts := strings.Split(path, ".")
		for _, section := range parts[:len(parts)-1] {
			if at[section] == nil {
				at[section] = map[string]any{}
			}
			at = at[section].(map[string]any)
		}
		at[parts[len(parts)-1]] = value
	}
	text, err := json.MarshalIndent(root, "", "  ")
	expect.NoError(t, err)
	return string(text)
}

// launch runs watershed serve with values in its file. It returns before the server is ready.
func launch(t *testing.T, values map[string]any) *configured {
	t.Helper()
	all := map[string]any{"listen": "127.0.0.1:0", "stateDir": t.TempDir()}
	maps.Copy(all, values)
	c := &configured{
		t: t, path: filepath.Join(t.TempDir(), "watershed.yaml"), values: all,
		state: &state.Dir{Path: fmt.Sprint(all["stateDir"])}, log: &output{},
		client: &http.Client{
			Timeout:   time.Minute,
			Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		},
		ended: make(chan error, 1),
	}
	expect.NoError(t, os.WriteFile(c.path, []byte(fileOf(t, all)), 0o600))
	cmd := newCommand()
	cmd.SetArgs([]string{"serve", "--config", c.path})
	cmd.SetErr(c.log)
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(t.Context())
	go func() { c.ended <- cmd.ExecuteContext(ctx) }()
	c.stopped = sync.OnceValue(func() error {
		c.cancel()
		return <-c.ended
	})
	t.Cleanup(func() { _ = c.stopped() })
	return c
}

// configure runs watershed serve with values in its file, until the clusters have synced.
func configure(t *testing.T, values map[string]any) *configured {
	t.Helper()
	c := launch(t, values)
	expect.Eventually(t, 20*time.Second, func() error {
		select {
		case err := <-c.ended:
			c.ended <- err
			t.Fatalf("serve ends with %v", err)
		default:
		}
		if code, body := c.get("/readyz?verbose", c.owner()); code != http.StatusOK {
			return fmt.Errorf("%d %s; log:\n%s", code, body, c.log)
		}
		return nil
	})
	return c
}

// wait returns the error that the server ends with by itself.
func (c *configured) wait() error {
	err := <-c.ended
	c.ended <- err
	return err
}

// change writes the file again with other values; nil removes a key.
func (c *configured) change(values map[string]any) {
	c.t.Helper()
	for path, value := range values {
		c.values[path] = value
		if value == nil {
			delete(c.values, path)
		}
	}
	expect.NoError(c.t, os.WriteFile(c.path, []byte(fileOf(c.t, c.values)), 0o600))
}

// owner returns the token of the owner.
func (c *configured) owner() string {
	token, _ := c.state.Owner()
	return token
}

// url returns the address of a path, "" before the server is announced.
func (c *configured) url(path string) string {
	v, err := c.state.Server()
	if err != nil {
		return ""
	}
	return "https://" + v.Address + path
}

// get returns the response to a request with a token.
func (c *configured) get(path, token string) (int, string) {
	return c.send(http.MethodGet, path, token, "")
}

// send returns the response to a request with a token and a body.
func (c *configured) send(method, path, token, body string) (int, string) {
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url(path), strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// clusters returns the document about the clusters.
func (c *configured) clusters() (all []struct {
	Name, State, Scope, Error string
	Labels                    map[string]string
	Objects                   int
},
) {
	_, body := c.get("/clusters", c.owner())
	var document struct{ Clusters json.RawMessage }
	if json.Unmarshal([]byte(body), &document) == nil {
		_ = json.Unmarshal(document.Clusters, &all)
	}
	return all
}

// names returns the names of the clusters.
func (c *configured) names() string {
	var all []string
	for _, one := range c.clusters() {
		all = append(all, one.Name)
	}
	return strings.Join(all, " ")
}

// placedIn returns the clusters of the objects of a list below /fleet.
func (c *configured) placedIn(path, token string) string {
	code, body := c.get(path, token)
	if code != http.StatusOK {
		return fmt.Sprint(code)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Annotations map[string]string }
		}
	}
	expect.NoError(c.t, json.Unmarshal([]byte(body), &list))
	found := map[string]bool{}
	for _, item := range list.Items {
		found[item.Metadata.Annotations["watershed.dev/cluster"]] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " ")
}
