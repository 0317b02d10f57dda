// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// echo starts a server that returns all bytes that it receives.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

func newProxy(t *testing.T, target string) *kubetest.Proxy {
	t.Helper()
	p, err := kubetest.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// dial connects with a deadline, so that no test hangs.
func dial(t *testing.T, p *kubetest.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp4", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// ask sends a word and expects it back.
func ask(conn net.Conn, word string) error {
	if _, err := io.WriteString(conn, word); err != nil {
		return err
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != word {
		return errors.New("got " + string(got))
	}
	return nil
}

// silent reports whether nothing arrives for a while.
func silent(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func TestProxy_passesEverything(t *testing.T) {
	p := newProxy(t, echo(t))
	conn := dial(t, p).(*net.TCPConn)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var writer sync.WaitGroup
	writer.Go(func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	})
	got, err := io.ReadAll(conn)
	writer.Wait()
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back: %v", len(got), len(sent), err)
	}
	s := p.Stats()
	if s.Accepted != 1 || s.Up != int64(len(sent)) || s.Down != int64(len(sent)) {
		t.Errorf("stats %+v, want one connection and %d bytes each way", s, len(sent))
	}
	expect.Soon(t, "no connection is active", func() bool { return p.Stats().Active == 0 })
}

func TestProxy_cut(t *testing.T) {
	p := newProxy(t, echo(t))
	conn := dial(t, p)
	if err := ask(conn, "before"); err != nil {
		t.Fatal(err)
	}
	if n := p.Stats().Active; n != 1 {
		t.Errorf("%d active connections, want 1", n)
	}
	p.Cut()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a cut connection: %v, want a reset", err)
	}
	if err := ask(dial(t, p), "after"); err != nil {
		t.Errorf("a new connection after the cut: %v", err)
	}
}

func TestProxy_vanish(t *testing.T) {
	p := newProxy(t, echo(t))
	conn := dial(t, p)
	if err := ask(conn, "before"); err != nil {
		t.Fatal(err)
	}
	if err := p.Vanish(); errors.Is(err, syscall.EPERM) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if !silent(t, conn) {
		t.Error("a connection to a server that has vanished is not silent")
	}
	if err := ask(conn, "after"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("bytes to a server that has vanished: %v, want a reset", err)
	}
	if err := ask(dial(t, p), "again"); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestProxy_down(t *testing.T) {
	p := newProxy(t, echo(t))
	conn := dial(t, p)
	if err := ask(conn, "before"); err != nil {
		t.Fatal(err)
	}
	p.Down()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a live connection: %v, want a reset", err)
	}
	if _, err := net.Dial("tcp4", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v, want a refusal", err)
	}
	if err := p.Up(); err != nil {
		t.Fatal(err)
	}
	if err := ask(dial(t, p), "after"); err != nil {
		t.Errorf("a new connection when it is up again: %v", err)
	}
	p.Close()
	if err := p.Up(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("up after close: %v", err)
	}
}

func TestProxy_stall(t *testing.T) {
	p := newProxy(t, echo(t))
	old := dial(t, p)
	if err := ask(old, "before"); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	late := dial(t, p)
	for name, conn := range map[string]net.Conn{"old": old, "late": late} {
		if _, err := io.WriteString(conn, "held"); err != nil {
			t.Errorf("%s connection: %v", name, err)
		}
		if !silent(t, conn) {
			t.Errorf("%s connection is not silent", name)
		}
	}
	p.Resume()
	for name, conn := range map[string]net.Conn{"old": old, "late": late} {
		got := make([]byte, 4)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "held" {
			t.Errorf("%s connection after the stall: %q, %v", name, got, err)
		}
	}

	// A cut ends stalled connections without waiting.
	p.Stall()
	if _, err := io.WriteString(old, "lost"); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if _, err := old.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("cut in a stall: %v, want a reset", err)
	}
}

func TestProxy_delay(t *testing.T) {
	p := newProxy(t, echo(t))
	conn := dial(t, p)
	const delay = 100 * time.Millisecond
	p.Delay(delay)
	begin := time.Now()
	if err := ask(conn, "slow"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 2*delay {
		t.Errorf("an answer took %s, want at least %s each way", took, delay)
	}
	p.Delay(0)
	// The machine may be busy, but not each time.
	for attempt := 1; ; attempt++ {
		begin = time.Now()
		if err := ask(conn, "fast"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took <= delay {
			break
		} else if attempt == 50 {
			t.Fatalf("without delay an answer took %s", took)
		}
	}
}

func TestProxy_truncateAfter(t *testing.T) {
	p := newProxy(t, echo(t))
	before := dial(t, p)
	if err := ask(before, "before"); err != nil {
		t.Fatal(err)
	}
	p.TruncateAfter(10, 1)
	next := dial(t, p)
	if err := ask(next, "12345"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(next, "67890abcdef"); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(next); string(rest) != "67890" {
		t.Errorf("the truncated connection gave %q more, %v, want 67890", rest, err)
	}
	if err := ask(before, "a connection from before has more than ten bytes"); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	if err := ask(dial(t, p), "the one after it has more than ten too"); err != nil {
		t.Errorf("the connection after: %v", err)
	}
}

// testProxyWatch runs a real watch through a proxy that fails in different ways.
func testProxyWatch(t *testing.T, c *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := c.Proxy(t)
	direct := clientFor(t, c.Config()).CoreV1().Secrets("default")
	remote := clientFor(t, p.Config(c.Config())).CoreV1().Secrets("default")
	create := func() string {
		t.Helper()
		s, err := direct.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "seen-"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Name
	}
	list, err := remote.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := remote.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	sees := func(name string) {
		t.Helper()
		e, ok := <-w.ResultChan()
		if !ok {
			t.Fatal("the watch ended")
		}
		if s, ok := e.Object.(*corev1.Secret); !ok || e.Type != watch.Added || s.Name != name {
			t.Fatalf("event %s %v, want secret %s", e.Type, e.Object, name)
		}
	}
	sees(create())

	p.Stall()
	held := create()
	select {
	case e := <-w.ResultChan():
		t.Errorf("event %s in a stall", e.Type)
	case <-time.After(300 * time.Millisecond):
	}
	p.Resume()
	sees(held)

	p.Cut()
	if e, ok := <-w.ResultChan(); ok && e.Type != watch.Error {
		t.Errorf("event %s %v after the cut, want an end", e.Type, e.Object)
	}
	if s := p.Stats(); s.Accepted == 0 || s.Down == 0 || s.Up == 0 {
		t.Errorf("stats %+v", s)
	}

	// A list that ends in the middle is an error, not a short list.
	big := make([]byte, 64<<10)
	for i := range big {
		big[i] = byte(rand.Uint32()) // random, so that compression does not make it small
	}
	if _, err := direct.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "big-"}, Data: map[string][]byte{"big": big},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.TruncateAfter(20_000, 1)
	if _, err := remote.List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("a truncated list succeeded")
	}
	if _, err := remote.List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("the list after it: %v", err)
	}
}
