// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// idleLimit is how many bytes of heap and stack an idle watch may take, of 100 on one
// connection. net/http's own part is about 9 KB.
const idleLimit = 16 << 10

// TestIdleWatch_memory measures what a watch takes that nothing happens on, after a list
// as informers send it: on connections with 100 watches each, and with one. The clients
// are another process. WATERSHED_IDLE_WATCHES is how many there are; the figures in
// docs/performance are of 10,000.
func TestIdleWatch_memory(t *testing.T) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("WATERSHED_IDLE_WATCHES"), "1000"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 1, 200, nil)
	w.read(w.pods(0) + "?fieldSelector=spec.nodeName%21%3Dnone") // pools have large buffers
	watch := w.url + w.pods(0) + "?watch=1&allowWatchBookmarks=true&labelSelector=no%3Dsuch&resourceVersion=" + uitoa(w.clusters.Cluster(0).Version())
	each := func(n, streams int) (total uint64) {
		heap, stacks := memoryInUse()
		stop := idleClients(t, watch, n, streams)
		defer stop()
		nowHeap, nowStacks := memoryInUse()
		heap, stacks = (nowHeap-heap)/uint64(n), (nowStacks-stacks)/uint64(n)
		t.Logf("%d idle watches, %d on a connection: %d bytes of heap and %d of stack each", n, streams, heap, stacks)
		return heap + stacks
	}
	each(100, 100) // what is made once
	if took := each(n, 100); took > idleLimit {
		t.Errorf("an idle watch takes %d bytes, want %d at most", took, idleLimit)
	}
	each(n/5, 1)
}

// memoryInUse is the live heap and the stacks of goroutines, which shrink by half in each
// collection.
func memoryInUse() (heap, stacks uint64) {
	for range 5 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

const idleEnv = "WATERSHED_IDLE_CLIENT"

// idleClients starts a process with watches, and returns when all have begun.
func idleClients(t *testing.T, url string, n, streams int) (stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIdleClient$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", idleEnv, url, n, streams))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("clients say %q: %v", line, err)
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// TestIdleClient is the process of idleClients. It ends with its input.
func TestIdleClient(t *testing.T) {
	var url string
	var n, streams int
	if _, err := fmt.Sscan(os.Getenv(idleEnv), &url, &n, &streams); err != nil {
		t.Skip("it is started by TestIdleWatch_memory")
	}
	var client *http.Client
	for i := range n {
		if i%streams == 0 {
			client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "application/json")
		r.Header.Set("User-Agent", "agent/v1.37.1 (linux/amd64) kubernetes/1234567")
		resp, err := client.Do(r)
		if err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
			fmt.Println("watch", i, err, strings.TrimSpace(fmt.Sprint(resp)))
			os.Exit(1)
		}
		go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}
