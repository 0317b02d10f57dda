// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// limits has the cases of the keys about memory and verification.
func (w *keyClusters) limits() map[string]keyCase {
	large := startOrigins(w.t, 1, 6000)[0]
	kubeconfig := kubeconfigOf(w.t, map[string]*origin{"large": large}, "large")
	// exceeds returns whether the cluster has more than its limit.
	exceeds := func(c *configured) string {
		for _, one := range c.clusters() {
			return fmt.Sprint(strings.Contains(one.Error, "limit exceeded"))
		}
		return "no cluster"
	}
	with := func() map[string]any {
		return map[string]any{"sources.kubeconfig": kubeconfig, "mirror.resources": []string{"pods"}}
	}
	return map[string]keyCase{
		"limits.clusterObjects": {
			with: with(), from: 100, to: 10_000, observe: exceeds, want: [2]string{"true", "false"},
		},
		"limits.clusterMemoryMiB": {with: with(), from: 1, to: 100, observe: exceeds, want: [2]string{"true", "false"}},
		"verifyEvery": {with: with(), to: "100ms", want: [2]string{"0", "many"}, observe: func(*configured) string {
			if n := large.asked("resourceVersionMatch=Exact"); n < 3 {
				return fmt.Sprint(n)
			}
			return "many"
		}},
		"limits.memoryMiB": {run: func(t *testing.T) {
			testMemory(t, with(), 4096, nil, `msg="memory limit" limit="4096 MiB" from=--memory-limit`)
		}},
		"mirror.expendable": {
			run: func(t *testing.T) { testMemory(t, with(), 1, []string{"pods"}, "no longer mirrored") },
		},
		"limits.historyMiB": {run: func(t *testing.T) { testHistory(t, large, with()) }},
	}
}

// testMemory checks that the log has a line with a memory limit and expendable resources, and
// does not have it without them.
func testMemory(t *testing.T, with map[string]any, limit int, expendable []string, line string) {
	t.Cleanup(func() { debug.SetMemoryLimit(math.MaxInt64) }) // serve sets that of the process
	c := configure(t, with)
	if strings.Contains(c.log.String(), line) {
		t.Errorf("the log has %s without the key:\n%s", line, c.log)
	}
	expect.NoError(t, c.stopped())
	with["limits.memoryMiB"] = limit
	if expendable != nil {
		with["mirror.expendable"] = expendable
	}
	c = launch(t, with)
	expect.Eventually(t, 20*time.Second, func() error {
		if !strings.Contains(c.log.String(), line) {
			return fmt.Errorf("the log has no %s:\n%s", line, c.log)
		}
		return nil
	})
}

// testHistory reads an old version, and reduces the history until the version has expired.
func testHistory(t *testing.T, o *origin, with map[string]any) {
	c := configure(t, with)
	list := "/clusters/large/api/v1/pods?limit=1"
	_, body := c.get(list, c.owner())
	var first struct {
		Metadata struct{ ResourceVersion string }
	}
	expect.NoError(t, json.Unmarshal([]byte(body), &first))
	for i := range 3000 {
		o.cluster.Touch(i)
	}
	exact := codeOf(list + "&resourceVersionMatch=Exact&resourceVersion=" + first.Metadata.ResourceVersion)
	expect.Eventually(t, 20*time.Second, func() error {
		if _, body := c.get(list, c.owner()); strings.Contains(body,
			`"resourceVersion":"`+first.Metadata.ResourceVersion+`"`) {
			return fmt.Errorf("the changes have not arrived: %.200s", body)
		}
		return nil
	})
	if got := exact(c); got != "200" {
		t.Errorf("the old version with a large history: %s", got)
	}
	c.change(map[string]any{"limits.historyMiB": 1})
	expect.Eventually(t, 30*time.Second, func() error {
		if got := exact(c); got != "410" {
			return fmt.Errorf("the old version with a small history: %s", got)
		}
		return nil
	})
}

// audit has the cases of the keys about the audit log.
func (w *keyClusters) audit() map[string]keyCase {
	return map[string]keyCase{
		"audit.log": {run: func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			configure(t, w.one("audit.log", path))
			expect.Soon(t, "the file has events", func() bool {
				is, err := os.Stat(path)
				return err == nil && is.Size() > 0
			})
		}},
		"audit.maxSizeMiB": {run: func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			c := configure(t, w.one("audit.log", path))
			fill(t, c, path, 1100<<10)
			if _, err := os.Stat(path + ".1"); err == nil {
				t.Fatal("the file was replaced before the change")
			}
			c.change(map[string]any{"audit.maxSizeMiB": 1})
			c.awaitReload("audit.maxSizeMiB")
			c.get("/clusters", c.owner())
			expect.Soon(t, "an old file", func() bool { _, err := os.Stat(path + ".1"); return err == nil })
		}},
		"audit.maxBackups": {run: func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			c := configure(t, w.one("audit.log", path, "audit.maxSizeMiB", 1))
			fill(t, c, path+".1", 1)
			c.change(map[string]any{"audit.maxBackups": 0})
			c.awaitReload("audit.maxBackups")
			expect.Eventually(t, 20*time.Second, func() error {
				fill(t, c, path, 1) // until the file is replaced once more
				if _, err := os.Stat(path + ".1"); err == nil {
					return fmt.Errorf("%s.1 is there", path)
				}
				return nil
			})
		}},
	}
}

// storage has the cases of the keys about the files of mirrored objects.
func (w *keyClusters) storage() map[string]keyCase {
	return map[string]keyCase{
		"storage.dir": {run: func(t *testing.T) {
			with := w.one("storage.dir", filepath.Join(t.TempDir(), "data"))
			read := func() int {
				return w.eu.asked("/pods?limit=") +
					w.eu.asked(
						"/pods?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true",
					)
			}
			before := read()
			expect.NoError(t, configure(t, with).stopped())
			once := read()
			c := configure(t, with)
			if again := read(); once == before || again != once {
				t.Errorf("the pods were read %d times, and after a restart %d times", once-before, again-once)
			}
			var list struct{ Items []any }
			code, body := c.get("/clusters/eu/api/v1/pods", c.owner())
			if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK ||
				len(list.Items) != 40 {
				t.Errorf("%d with %d pods, %v", code, len(list.Items), err)
			}
		}},
		"storage.retention":  {run: w.logged("storage.retention", "12h", "past=12h0m0s")},
		"storage.maxSizeMiB": {run: w.logged("storage.maxSizeMiB", 77, `limit="77 MiB"`)},
		"storage.keyVariable": {run: func(t *testing.T) {
			t.Setenv("KEYS_OF_A_TEST", "c2hvcnQ=")
			c := launch(t, w.one("storage.dir", t.TempDir(), "storage.keyVariable", "KEYS_OF_A_TEST"))
			if err := c.wait(); err == nil ||
				!strings.Contains(err.Error(), "--data-key-env: disk: environment variable KEYS_OF_A_TEST: key 1") {
				t.Errorf("a key that is too short: %v", err)
			}
		}},
		"storage.kms": {run: func(t *testing.T) {
			c := launch(t, w.one("storage.dir", t.TempDir(), "storage.kms", "tcp://127.0.0.1:1"))
			if err := c.wait(); err == nil || !strings.Contains(err.Error(), "--data-kms: unsupported scheme") {
				t.Errorf("an address that is not a socket: %v", err)
			}
		}},
		"storage.keyFile": {run: func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys")
			expect.NoError(t, os.WriteFile(path, []byte("short\n"), 0o600))
			c := launch(t, w.one("storage.dir", t.TempDir(), "storage.keyFile", path))
			if err := c.wait(); err == nil || !strings.Contains(err.Error(), "--data-key-file") {
				t.Errorf("a key that is too short: %v", err)
			}
		}},
	}
}

// logged returns a case that looks for a text in the log of a server that stores objects.
// What it does with the value takes hours; package disk has the tests of that.
func (w *keyClusters) logged(key string, value any, text string) func(*testing.T) {
	return func(t *testing.T) {
		c := configure(t, w.one("storage.dir", t.TempDir(), key, value))
		if log := c.log.String(); !strings.Contains(log, text) {
			t.Errorf("no %s in\n%s", text, log)
		}
	}
}

// fill sends requests until the audit log has a size.
func fill(t *testing.T, c *configured, path string, size int64) {
	t.Helper()
	client := &http.Client{Transport: c.client.Transport.(*http.Transport).Clone()}
	client.Transport.(*http.Transport).DisableKeepAlives = false
	defer client.CloseIdleConnections()
	token, url := c.owner(), c.url("/clusters?labelSelector="+strings.Repeat("x", 60)+"%21&"+strings.Repeat("x", 3000))
	expect.Eventually(t, time.Minute, func() error {
		var sending sync.WaitGroup
		for range 4 {
			sending.Go(func() {
				for range 50 {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
					if err != nil {
						continue
					}
					r.Header.Set("Authorization", "Bearer "+token)
					if response, err := client.Do(r); err == nil {
						response.Body.Close()
					}
				}
			})
		}
		sending.Wait()
		is, err := os.Stat(path)
		if err == nil && is.Size() < size {
			err = fmt.Errorf("%s has %d bytes", path, is.Size())
		}
		return err
	})
}
