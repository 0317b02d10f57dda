// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
)

// shutdownGrace is how long commands may take to end when the program is to end.
const shutdownGrace = 2 * time.Second

// TestConnections_faults checks open commands and followed logs when the node refuses them,
// when the cluster stops responding, is killed or vanishes, when connections to it break, and
// when the program is to end. Both sides end soon each time, and nothing is left in the
// program.
func TestConnections_faults(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	c := startBehind(t, "--resources", "pods", "--pprof", "127.0.0.1:0", "--shutdown-grace", shutdownGrace.String())
	c.createPods(t, "web", heldLog+"log", refuses+"403", refuses+"500")
	c.copied = c.client(t, c.through)
	c.readsCopy(t)
	c.endsWell(t, openThree(t, c.through)) // whatever is created once
	before := c.settled(t)
	for _, fault := range []struct {
		name string
		test func(*testing.T)
	}{
		{"upgrades that fail", c.refused},
		{"a cluster that pauses", c.pauses},
		{"a cluster that stops", c.stops},
		{"broken connections", c.breaks},
		{"a cluster that is killed", c.isKilled},
		{"a cluster that vanishes", c.vanishes},
	} {
		t.Run(fault.name, func(t *testing.T) {
			fault.test(t)
			t.Logf("after: %s; before: %s", c.restored(t, before), before)
		})
	}
	t.Run("shutdown", c.shutsDown)
}

// three are a command over either protocol, and a log.
type three struct{ socket, spdy, log *heldStream }

func (s *three) all() []*heldStream { return []*heldStream{s.socket, s.spdy, s.log} }

func openThree(t *testing.T, config *rest.Config) *three {
	t.Helper()
	s := &three{}
	var err error
	if s.socket, err = openCommand(t.Context(), config, false); err == nil {
		if s.spdy, err = openCommand(t.Context(), config, true); err == nil {
			s.log, err = openLog(t.Context(), config, heldLog+"log")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readsCopy checks that the copy answers soon.
func (c *streaming) readsCopy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := c.copied.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// endsWell ends streams, and checks that they end as if nothing had happened to them.
func (c *streaming) endsWell(t *testing.T, s *three) {
	t.Helper()
	for _, one := range []*heldStream{s.socket, s.spdy} {
		if err := one.echo("a last line\n"); err != nil {
			t.Error(err)
		}
		_ = one.input.Close()
	}
	c.kubelet.endLogs()
	for i, one := range s.all() {
		if err := one.endsWithin(t, patience); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	if got := s.log.out.String(); got != "first\nlast\n" {
		t.Errorf("log %q", got)
	}
}

// refused checks that the client receives the error of a node that does not accept it, as it
// does from the API server.
func (c *streaming) refused(t *testing.T) {
	for _, code := range []string{"403", "500"} {
		for name, open := range map[string]func(*rest.Config) (*heldStream, error){
			"websocket": func(r *rest.Config) (*heldStream, error) {
				return openCommandIn(t.Context(), r, refuses+code, false)
			},
			"spdy": func(r *rest.Config) (*heldStream, error) {
				return openCommandIn(t.Context(), r, refuses+code, true)
			},
			"log": func(r *rest.Config) (*heldStream, error) { return openLog(t.Context(), r, refuses+code) },
		} {
			_, want := open(c.direct)
			for range 10 {
				if _, err := open(c.through); err == nil || want == nil || reason(err) != reason(want) {
					t.Errorf("%s of a node that answers %s: server %v, replica %v", name, code, want, err)
				}
			}
		}
	}
}

// reason returns the text of an error without how far the stream had come.
func reason(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return err.Error()
}

// pauses checks that a pause of the cluster is a pause of its streams.
func (c *streaming) pauses(t *testing.T) {
	s := openThree(t, c.through)
	c.readsCopy(t) // the review of this access is kept for some time
	c.network.Stall()
	c.readsCopy(t)
	go func() {
		time.Sleep(time.Second) // how long the network stalls
		c.network.Resume()
	}()
	c.endsWell(t, s)
}

// stops checks that clients can leave while the cluster does not respond.
func (c *streaming) stops(t *testing.T) {
	s := openThree(t, c.through)
	c.readsCopy(t) // the review of this access is kept for some time
	c.network.Stall()
	defer c.network.Resume()
	for _, one := range s.all() {
		one.cancel()
	}
	expect.Eventually(t, 10*time.Second, c.passesNothing)
	c.readsCopy(t)
}

// breaks checks that clients notice when the connection to the cluster breaks.
func (c *streaming) breaks(t *testing.T) {
	s := openThree(t, c.through)
	c.network.Cut()
	s.areCutOff(t, 5*time.Second)
}

// isKilled checks that clients notice when the API server ends without a word.
func (c *streaming) isKilled(t *testing.T) {
	s := openThree(t, c.through)
	c.cluster.APIServer.Kill()
	s.areCutOff(t, 5*time.Second)
	if err := c.cluster.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// areCutOff checks that the streams end soon, and not as if they were complete. Over SPDY,
// client-go reports a command whose status is missing as complete, also without a replica.
func (s *three) areCutOff(t *testing.T, limit time.Duration) {
	t.Helper()
	for i, one := range s.all() {
		if err := one.endsWithin(t, limit); err == nil && one != s.spdy {
			t.Errorf("stream %d ends as if it were complete", i)
		}
	}
}

// vanishes checks that a cluster which disappears without closing its connections is noticed.
// The clients of commands send a ping every 5 s, which the kernel answers with a reset. A log
// ends with the first probe of TCP, after 30 s. The short test does not wait for it: the
// client ends the log.
func (c *streaming) vanishes(t *testing.T) {
	s := openThree(t, c.through)
	vanished(t, c.network.Vanish())
	if *streamsFlag < mostConnections {
		s.log.cancel()
	}
	began := time.Now()
	s.areCutOff(t, 40*time.Second)
	t.Logf("noticed after %s", time.Since(began).Round(time.Second))
}

// vanished skips a test that may not make a connection vanish.
func vanished(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("%v; it needs CAP_NET_ADMIN", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// dialCommand runs a command, and returns the connection of its client.
func (c *streaming) dialCommand(t *testing.T) *net.TCPConn {
	t.Helper()
	config, err := rest.TLSConfigFor(c.through)
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(c.through.Host)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	config.ServerName, config.NextProtos = address.Hostname(), []string{"http/1.1"}
	secure := tls.Client(conn, config)
	_, err = fmt.Fprintf(secure,
		"POST %s/api/v1/namespaces/default/pods/web/exec?container=main&command=cat&stdin=1 HTTP/1.1\r\nHost: "+
			"x\r\nContent-Length: 0\r\nAuthorization: Bearer %s\r\n"+
			"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n",
		address.Path, c.through.BearerToken)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	return conn.(*net.TCPConn)
}

// passesNothing returns an error while the program is passing requests on.
func (c *streaming) passesNothing() error {
	u, err := usageOf(c.process)
	if err == nil && u.passing > 0 {
		err = fmt.Errorf("%d requests are passed on", u.passing)
	}
	return err
}

// shutsDown checks the end of the program: logs end at once, and not as if they were
// complete. Commands have time to end, and the others are cut off.
func (c *streaming) shutsDown(t *testing.T) {
	ends, stays := openThree(t, c.through), openThree(t, c.through)
	began := time.Now()
	if err := c.process.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, one := range []*heldStream{ends.log, stays.log} {
		if err := one.endsWithin(t, shutdownGrace/2); err == nil {
			t.Errorf("a log ends as if it were complete: %q", one.out.String())
		}
	}
	for _, one := range []*heldStream{ends.socket, ends.spdy} {
		if err := one.echo("during the shutdown\n"); err != nil {
			t.Error(err)
		}
		_ = one.input.Close()
		if err := one.endsWithin(t, shutdownGrace/2); err != nil {
			t.Errorf("a command that ends in time: %v", err)
		}
	}
	stays.areCutOff(t, 3*shutdownGrace)
	select {
	case <-c.process.Ended:
	case <-time.After(3 * shutdownGrace):
		t.Fatal("the program does not end")
	}
	if took := time.Since(began); took < shutdownGrace || took > 3*shutdownGrace {
		t.Errorf("the program took %s to end, want about %s", took, shutdownGrace)
	}
}
