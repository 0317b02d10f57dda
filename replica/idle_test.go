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
	"testing"
)

// idleLimit is how many bytes of heap and stack an idle watch may take, of 100 on one
// connection. 8 KB are the stack, 4 KB net/http's write buffer of the stream, and 3 KB its
// request and response.
const idleLimit = 18 << 10

// TestIdleWatch_memory measures the memory of a watch without events, after one event,
// and after lists like those of informers: on connections with 100 watches each, and with
// one. The clients are another process. WATERSHED_IDLE_WATCHES is the number of watches.
func TestIdleWatch_memory(t *testing.T) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("WATERSHED_IDLE_WATCHES"), "1000"))
	if err != nil {
		t.Fatal(err)
	}
	w := newSimulatedReplica(t, 1, 20, nil)
	c := w.clusters.Cluster(0)
	pod := c.Pod(0)
	list := w.url + w.pods(0) + "?fieldSelector=metadata.name%21%3Dnone"
	watch := w.url + "/clusters/" + c.Name() + "/api/v1/namespaces/" + pod.Namespace +
		"/pods?allowWatchBookmarks=true&watch=1&resourceVersion="
	each := func(n, streams int) (total uint64) {
		heap, stacks := memoryInUse()
		stop := idleClients(t, list, watch+uitoa(c.Version()), n, streams, func() { c.Touch(0) })
		defer stop()
		nowHeap, nowStacks := memoryInUse()
		heap, stacks = (nowHeap-heap)/uint64(n), (nowStacks-stacks)/uint64(n)
		t.Logf("%d idle watches, %d on a connection: %d bytes of heap and %d of stack each", n, streams, heap, stacks)
		return heap + stacks
	}
	each(100, 100) // memory that is allocated only once
	// Other goroutines, whose stacks grow and shrink, only add to a measurement: the least one counts.
	took := each(n, 100)
	for tries := 1; took > idleLimit && tries < 5; tries++ {
		took = min(took, each(n, 100))
	}
	if took > idleLimit {
		t.Errorf("an idle watch takes %d bytes, want %d at most", took, idleLimit)
	}
	each(n/5, 1)
}

// memoryInUse returns the live heap and the stacks of goroutines, which shrink by half in
// each collection.
func memoryInUse() (heap, stacks uint64) {
	for range 5 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

const idleEnv = "WATERSHED_IDLE_CLIENT"

// idleClients starts a process with watches, calls change when all have begun, and
// returns when each has received an event.
func idleClients(t *testing.T, list, watch string, n, streams int, change func()) (stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIdleClient$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", idleEnv, list, watch, n, streams))
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
	lines := bufio.NewReader(out)
	for _, want := range []string{"begun\n", "seen\n"} {
		if line, err := lines.ReadString('\n'); line != want {
			t.Fatalf("clients say %q, want %q: %v", line, want, err)
		}
		if want == "begun\n" {
			change()
		}
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// TestIdleClient is the process of idleClients. It ends with its input.
func TestIdleClient(t *testing.T) {
	var list, watch string
	var n, streams int
	if _, err := fmt.Sscan(os.Getenv(idleEnv), &list, &watch, &n, &streams); err != nil {
		t.Skip("it is started by TestIdleWatch_memory")
	}
	var client *http.Client
	get := func(url string) io.ReadCloser {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "application/json")
		r.Header.Set("User-Agent", "agent/v1.37.1 (linux/amd64) kubernetes/1234567")
		resp, err := client.Do(r)
		if err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
			fmt.Fprintln(os.Stdout, url, err, resp)
			os.Exit(1)
		}
		return resp.Body
	}
	seen := make(chan error, n)
	for i := range n {
		if i%streams == 0 {
			client = &http.Client{
				Transport: &http.Transport{
					ForceAttemptHTTP2: true,
					TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
				},
			}
		}
		if i%10 == 0 {
			body := get(list)
			_, _ = io.Copy(io.Discard, body)
			_ = body.Close()
		}
		body := get(watch)
		go func() {
			_, err := io.ReadFull(body, make([]byte, 100))
			seen <- err
			_, _ = io.Copy(io.Discard, body)
		}()
	}
	fmt.Fprintln(os.Stdout, "begun")
	for range n {
		if err := <-seen; err != nil {
			fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
	}
	fmt.Fprintln(os.Stdout, "seen")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}
