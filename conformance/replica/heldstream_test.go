// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
)

// heldStream is a command that echoes its input, or a followed log.
type heldStream struct {
	input *io.PipeWriter // nil for a log
	out   *expect.Output
	// cancel ends the client without a word to the command.
	cancel context.CancelFunc
	ended  chan struct{}
	// err is how it has ended, after ended.
	err error
}

// heldClients has the client of each configuration. client-go drops transports that no client
// uses, and then their connections stay open for some time.
var heldClients sync.Map

// clientOf returns the client of a configuration.
func clientOf(config *rest.Config) (*kubernetes.Clientset, error) {
	if c, ok := heldClients.Load(config); ok {
		return c.(*kubernetes.Clientset), nil
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	first, _ := heldClients.LoadOrStore(config, c)
	return first.(*kubernetes.Clientset), nil
}

// closeIdle closes the connections of these clients that no request uses.
func closeIdle() {
	heldClients.Range(func(_, c any) bool {
		utilnet.CloseIdleConnectionsFor(c.(*kubernetes.Clientset).RESTClient().(*rest.RESTClient).Client.Transport)
		return true
	})
}

// openCommand runs a command that echoes its input in the pod web, and returns when it has
// echoed a line.
func openCommand(ctx context.Context, config *rest.Config, spdy bool) (*heldStream, error) {
	return openCommandIn(ctx, config, "web", spdy)
}

// openCommandIn is openCommand in another pod.
func openCommandIn(ctx context.Context, config *rest.Config, pod string, spdy bool) (*heldStream, error) {
	client, err := clientOf(config)
	if err != nil {
		return nil, err
	}
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: "main", Command: []string{"cat"}, Stdin: true, Stdout: true,
		}, scheme.ParameterCodec).URL()
	var executor remotecommand.Executor
	if spdy {
		executor, err = remotecommand.NewSPDYExecutor(config, http.MethodPost, url)
	} else {
		executor, err = remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String())
	}
	if err != nil {
		return nil, err
	}
	input, writer := io.Pipe()
	s := &heldStream{input: writer, out: &expect.Output{}, ended: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(klog.NewContext(ctx, klog.Logger{})) // the errors are expected
	go func() {
		defer close(s.ended)
		s.err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: input, Stdout: s.out})
		_ = input.Close()
	}()
	if err := s.echo("hello\n"); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// openLog follows the log of a pod, and returns when it has a line.
func openLog(ctx context.Context, config *rest.Config, pod string) (*heldStream, error) {
	client, err := clientOf(config)
	if err != nil {
		return nil, err
	}
	s := &heldStream{out: &expect.Output{}, ended: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(ctx)
	body, err := client.CoreV1().Pods("default").GetLogs(pod,
		&corev1.PodLogOptions{Container: "main", Follow: true}).Stream(ctx)
	if err != nil {
		s.cancel()
		return nil, err
	}
	go func() {
		defer close(s.ended)
		defer body.Close()
		_, s.err = io.Copy(s.out, body)
	}()
	if err := s.wait(func() bool { return s.out.String() != "" }); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// echo sends a line, and waits until it has come back.
func (s *heldStream) echo(line string) error {
	want := s.out.String() + line
	if _, err := io.WriteString(s.input, line); err != nil {
		return fmt.Errorf("send %q: %w", line, s.failure())
	}
	return s.wait(func() bool { return s.out.String() == want })
}

// wait waits for a condition, while the stream is open.
func (s *heldStream) wait(done func() bool) error {
	end := time.Now().Add(patience)
	for !done() {
		select {
		case <-s.ended:
			if done() {
				return nil
			}
			return fmt.Errorf("the stream has ended after %q: %w", brief(s.out.String()), s.failure())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("the stream has stopped after %q", brief(s.out.String()))
		}
	}
	return nil
}

// failure returns how the stream has ended.
func (s *heldStream) failure() error {
	<-s.ended
	if s.err == nil {
		return io.EOF
	}
	return s.err
}

// endsWithin returns how the stream has ended, or fails the test.
func (s *heldStream) endsWithin(t *testing.T, limit time.Duration) error {
	t.Helper()
	select {
	case <-s.ended:
		return s.err
	case <-time.After(limit):
		t.Fatalf("the stream is open after %s", limit)
		return nil
	}
}

// profilesURL matches the address of the profiles in the log of the program.
var profilesURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/debug/pprof/`)

// usage is what a process uses.
type usage struct {
	// goroutines and files do not include those of connections to clusters that wait for a
	// next request. At most 25 do so, for 90 s.
	goroutines, files int
	// passing is how many requests it is passing on.
	passing int
	// heap is the live heap, and resident the resident memory, in bytes.
	heap, resident int64
}

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d files, heap %.1f MB, resident %.1f MB", u.goroutines, u.files,
		float64(u.heap)/(1<<20), float64(u.resident)/(1<<20))
}

// usageOf returns what the process uses, after a garbage collection. The process needs --pprof.
func usageOf(p *program.Process) (u usage, err error) {
	root := profilesURL.FindString(p.Log.String())
	text, err := fetch(root + "goroutine?debug=2")
	if err != nil {
		return u, err
	}
	idle := 0
	for stack := range strings.SplitSeq(text, "\n\n") {
		if strings.Contains(stack, "http.(*persistConn).readLoop(") &&
			strings.Contains(stack, "bufio.(*Reader).Peek(") {
			idle++
		}
	}
	u.goroutines = strings.Count("\n"+text, "\ngoroutine ") - 2*idle
	u.passing = strings.Count(text, "passthrough.(*Forwarder).Serve(")
	if text, err = fetch(root + "heap?gc=1&debug=1"); err != nil {
		return u, err
	}
	u.heap = number(text, "# HeapAlloc = ")
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Cmd.Process.Pid))
	if err != nil {
		return u, err
	}
	u.files = len(files) - idle
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	u.resident = number(string(status), "VmRSS:") << 10
	return u, err
}

// number returns the number that follows a label at the beginning of a line.
func number(text, label string) int64 {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), label); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}

func fetch(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
