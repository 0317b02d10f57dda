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
const shutdownGrace = 4 * time.Second

// TestConnections_faults checks open commands and followed logs when the cluster stops
// responding, when connections to it break, and when the program is to end.
func TestConnections_faults(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	c := startBehind(t, "--resources", "pods", "--pprof", "127.0.0.1:0", "--shutdown-grace", shutdownGrace.String())
	c.createPod(t, "web")
	c.createPod(t, heldLog+"log")
	t.Run("a cluster that pauses", c.pauses)
	t.Run("a cluster that stops", c.stops)
	t.Run("broken connections", c.breaks)
	t.Run("a client that vanishes", c.vanishes)
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
	if _, err := c.client(t, c.through).CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// pauses checks that a pause of the cluster is a pause of its streams.
func (c *streaming) pauses(t *testing.T) {
	s := openThree(t, c.through)
	c.network.Stall()
	c.readsCopy(t)
	go func() {
		time.Sleep(2 * time.Second)
		c.network.Resume()
	}()
	for _, one := range []*heldStream{s.socket, s.spdy} {
		if err := one.echo("after a pause\n"); err != nil {
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
	c.settled(t, 0, usage{})
}

// stops checks that clients can leave while the cluster does not respond, and that nothing
// of them stays in the program.
func (c *streaming) stops(t *testing.T) {
	s := openThree(t, c.through)
	c.network.Stall()
	defer c.network.Resume()
	for _, one := range s.all() {
		one.cancel()
	}
	expect.Eventually(t, 10*time.Second, c.passesNothing)
	c.readsCopy(t)
}

// breaks checks that clients notice when the connection to the cluster breaks, and that a log
// which is cut off does not look complete.
func (c *streaming) breaks(t *testing.T) {
	s := openThree(t, c.through)
	c.network.Cut()
	for i, one := range s.all() {
		if err := one.endsWithin(t, 10*time.Second); err == nil {
			t.Errorf("stream %d ends as if it were complete", i)
		}
	}
	c.settled(t, 0, usage{})
}

// vanishes checks that a client which disappears without closing its connection is noticed
// by the probes of TCP. It takes the time after which the first probe is sent, 15 s.
func (c *streaming) vanishes(t *testing.T) {
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
	defer conn.Close()
	config.ServerName, config.NextProtos = address.Hostname(), []string{"http/1.1"}
	secure := tls.Client(conn, config)
	_, err = fmt.Fprintf(secure, "POST %s/api/v1/namespaces/default/pods/web/exec?container=main&command=cat&stdin=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: Bearer %s\r\n"+
		"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", address.Path, c.through.BearerToken)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	if err := vanish(conn.(*net.TCPConn)); errors.Is(err, syscall.EPERM) {
		t.Skip("a connection cannot be dropped silently without CAP_NET_ADMIN")
	} else if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	expect.Eventually(t, patience, c.passesNothing)
	t.Logf("noticed after %s", time.Since(began).Round(time.Second))
}

// passesNothing returns an error while the program is passing requests on.
func (c *streaming) passesNothing() error {
	u, err := c.process.usage()
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
	if err := c.process.cmd.Process.Signal(syscall.SIGTERM); err != nil {
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
	for _, one := range []*heldStream{stays.socket, stays.spdy} {
		if err := one.endsWithin(t, 3*shutdownGrace); err == nil {
			t.Error("a command that is cut off ends as if it were complete")
		}
	}
	select {
	case <-c.process.ended:
	case <-time.After(3 * shutdownGrace):
		t.Fatal("the program does not end")
	}
	if took := time.Since(began); took < shutdownGrace || took > 2*shutdownGrace {
		t.Errorf("the program took %s to end, want about %s", took, shutdownGrace)
	}
}
