// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"      //nolint:staticcheck // its successor would be one more dependency
	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // its successor would be one more dependency
	"k8s.io/apimachinery/pkg/util/remotecommand"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// heldLog begins the names of pods whose followed logs stay open until [kubelet.endLogs].
	heldLog = "held-"
	// refuses begins the names of pods whose node refuses all requests. The code of the
	// response follows.
	refuses = "refuses-"
)

// kubelet is the kubelet of all nodes. It serves what kwok cannot: commands whose exit code
// and end of standard input matter, and more followed logs than there are inotify instances.
// It passes all other requests on to kwok.
type kubelet struct {
	server *httptest.Server
	kwok   atomic.Pointer[httputil.ReverseProxy]
	// dir is the working folder of commands.
	dir string

	mu    sync.Mutex
	ended chan struct{} // closed by endLogs
	// commands and logs count those that are running.
	commands, logs int
}

// startKubelet starts the kubelet. The caller calls serve when the cluster runs.
func startKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{dir: t.TempDir(), ended: make(chan struct{})}
	k.server = httptest.NewUnstartedServer(http.HandlerFunc(k.handle))
	k.server.StartTLS()
	t.Cleanup(k.server.Close)
	return k
}

func (k *kubelet) port() int { return k.server.Listener.Addr().(*net.TCPAddr).Port }

// serve lets the kubelet pass requests on to the kwok of a cluster.
func (k *kubelet) serve(c *kubetest.Cluster) error {
	to, err := url.Parse(c.KwokURL())
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // both ends are of this test
	}
	proxy.FlushInterval = -1
	k.kwok.Store(proxy)
	return nil
}

func (k *kubelet) handle(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path+"///", "/") // /exec/namespace/pod/container
	code, refused := strings.CutPrefix(parts[3], refuses)
	switch {
	case refused:
		n, _ := strconv.Atoi(code)
		http.Error(w, "the node refuses "+parts[1], n)
	case parts[1] == "containerLogs" && strings.HasPrefix(parts[3], heldLog):
		k.holdLog(w, r)
	case parts[1] == "exec" && r.URL.Query().Get("tty") == "":
		k.exec(w, r)
	default:
		k.kwok.Load().ServeHTTP(w, r)
	}
}

// running returns how many commands and held logs there are.
func (k *kubelet) running() (commands, logs int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.commands, k.logs
}

func (k *kubelet) add(commands, logs int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.commands += commands
	k.logs += logs
}

// endLogs ends the held logs, after a last line.
func (k *kubelet) endLogs() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.ended)
	k.ended = make(chan struct{})
}

// holdLog serves a log that has a line, and another one before its end.
func (k *kubelet) holdLog(w http.ResponseWriter, r *http.Request) {
	k.add(0, 1)
	defer k.add(0, -1)
	k.mu.Lock()
	ended := k.ended
	k.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, "first\n")
	_ = http.NewResponseController(w).Flush()
	select {
	case <-r.Context().Done():
	case <-ended:
		_, _ = io.WriteString(w, "last\n")
	}
}

// exec runs a command on this machine, over SPDY as kube-apiserver requests it.
func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		return // the handshake has responded
	}
	query := r.URL.Query()
	want := 1
	for _, name := range []string{"input", "output", "error"} {
		if query.Get(name) == "1" {
			want++
		}
	}
	type arrival struct {
		httpstream.Stream
		accepted <-chan struct{}
	}
	arrived := make(chan arrival, want)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, accepted <-chan struct{}) error {
		arrived <- arrival{s, accepted}
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for len(streams) < want {
		select {
		case s := <-arrived:
			<-s.accepted
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return
		case <-time.After(patience):
			return
		}
	}
	k.add(1, 0)
	defer k.add(-1, 0)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-conn.CloseChan():
			cancel()
		case <-ctx.Done():
		}
	}()
	text, _ := json.Marshal(k.run(ctx, query["command"], streams))
	_, _ = streams[corev1.StreamTypeError].Write(text)
	// The client closes the connection. If it were closed here while input is unread, the
	// kernel would reset it, and kube-apiserver then sometimes ends its response without the
	// rest of the output or the exit code. In a trial it did so for 5 of 100 commands, and for
	// 7 of 100 through a replica.
	for name, s := range streams {
		if name != corev1.StreamTypeStdin {
			_ = s.Close()
		}
	}
	select {
	case <-conn.CloseChan():
	case <-time.After(patience):
	}
}

// run runs a command and returns its status, in the form of a kubelet.
func (k *kubelet) run(ctx context.Context, command []string, streams map[string]httpstream.Stream) metav1.Status {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = k.dir
	// A stream that is nil must not become an interface that is not.
	if s := streams[corev1.StreamTypeStdout]; s != nil {
		cmd.Stdout = s
	}
	if s := streams[corev1.StreamTypeStderr]; s != nil {
		cmd.Stderr = s
	}
	if s := streams[corev1.StreamTypeStdin]; s != nil {
		input, err := cmd.StdinPipe()
		if err != nil {
			return metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
		}
		go func() {
			_, _ = io.Copy(input, s)
			_ = input.Close()
			_, _ = io.Copy(io.Discard, s) // it ends with the connection
		}()
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit) && exit.Exited():
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Message: fmt.Sprintf("command terminated with non-zero exit code: %v", err),
			Details: &metav1.StatusDetails{
				Causes: []metav1.StatusCause{
					{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitCode())},
				},
			},
		}
	}
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Reason:  metav1.StatusReasonInternalError,
		Code:    http.StatusInternalServerError,
		Message: "error executing command in container: " + err.Error(),
	}
}
