// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// attackerVariable has the task of a child process that attacks a server: its address, the
// number of connections, and their kind. The attacker is a process of its own, so that
// it has file descriptors of its own and its memory is not counted.
const attackerVariable = "WATERSHED_ATTACKER"

// preface begins an HTTP/2 connection: the preface and SETTINGS.
var preface = append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0)

// kinds are the ways to hold a connection. Each returns when the server has closed it.
var kinds = []struct {
	name string
	hold func(net.Conn)
}{
	{"silent", drain},
	{"half ClientHello", func(c net.Conn) { send(c, []byte{22, 3, 1, 2, 0, 1}) }},
	{"idle HTTP/2", func(c net.Conn) { send(secure(c, "h2"), preface) }},
	{"endless HTTP/2 headers", func(c net.Conn) {
		send(secure(c, "h2"), append(slices.Clip(preface), 0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82))
	}},
	{"slow headers", func(c net.Conn) {
		s := secure(c, "http/1.1")
		for _, b := range []byte("GET / HTTP/1.1\r\nHost: localhost\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy") {
			if _, err := s.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(time.Second) // a byte a second
		}
	}},
	{"slow body", func(c net.Conn) {
		send(secure(c, "http/1.1"),
			[]byte("POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf"))
	}},
}

func secure(c net.Conn, protocol string) net.Conn {
	return tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
}

func send(c net.Conn, text []byte) {
	if _, err := c.Write(text); err == nil {
		drain(c)
	}
}

func drain(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// allKinds is the kind of an attack with connections of every kind.
const allKinds = -1

// mixture has the kinds of such an attack. Most connections are half-open: with many
// handshakes the test would measure the processors that the attacker needs.
var mixture = []int{0, 2, 0, 1, 0, 3, 1, 0, 2, 0, 1, 2, 0, 4, 1, 0, 2, 0, 3, 5}

// attack starts a child process that holds n connections of a kind, and opens another one
// for each that the server closes. The returned function ends it.
func attack(t *testing.T, address string, n, kind int) (end func()) {
	t.Helper()
	// The attacker shares the machine's processors with the server. A real one does not.
	cmd := exec.CommandContext(t.Context(), "nice", "-n", "19", os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", attackerVariable, address, n, kind))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// attackFromChild attacks until standard input is closed, and ends the process.
func attackFromChild(task string) {
	var address string
	var n, kind int
	if _, err := fmt.Sscan(task, &address, &n, &kind); err != nil {
		panic(err)
	}
	for i := range n {
		hold := kinds[max(kind, 0)].hold
		if kind == allKinds {
			hold = kinds[mixture[i%len(mixture)]].hold
		}
		go func() {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%40))}}
			for {
				if c, err := dialer.Dial("tcp", address); err == nil {
					hold(c)
					c.Close()
				}
				time.Sleep(time.Duration(rand.Int64N(int64(time.Second)))) // all do not come back at once
			}
		}()
		if i%50 == 49 { // more at once would exceed the queue of the listener
			time.Sleep(20 * time.Millisecond)
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}
