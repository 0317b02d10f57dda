// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// openState opens a state folder and its authority.
func openState(t *testing.T, s *state, now func() time.Time) (*authority, bool) {
	t.Helper()
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	a, made, err := s.openAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	return a, made
}

// trust verifies the server's certificate as a client would.
func trust(t *testing.T, ca *authority, leaf *tls.Certificate, host string, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca.pem) {
		t.Fatal("the authority is no certificate")
	}
	_, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now})
	return err
}

func certificate(t *testing.T, ca *authority) *tls.Certificate {
	t.Helper()
	leaf, err := ca.serve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// TestAuthority_stays checks that the authority is the same after a restart, cannot be
// read by other users, and is valid for this machine only.
func TestAuthority_stays(t *testing.T) {
	s := &state{dir: t.TempDir() + "/new/state"}
	first, made := openState(t, s, time.Now)
	if !made {
		t.Error("the first start has not made an authority")
	}
	second, made := openState(t, s, time.Now)
	if made || !bytes.Equal(first.pem, second.pem) {
		t.Error("the second start has another authority")
	}
	for path, want := range map[string]os.FileMode{s.dir: 0o700, s.authorityFile(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v, want %v", path, info.Mode().Perm(), err, want)
		}
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 1 {
		t.Errorf("in the folder there are %v, %v, want the authority alone", left, err)
	}
	first.address = net.IPv4(127, 1, 2, 3)
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "127.1.2.3"} {
		if err := trust(t, second, certificate(t, first), host, time.Now()); err != nil {
			t.Errorf("as %s: %v", host, err)
		}
	}
	for _, address := range []net.IP{net.IPv4(192, 0, 2, 1), net.ParseIP("2001:db8::1")} {
		wider := &authority{certificate: first.certificate, pem: first.pem, key: first.key, now: time.Now, address: address}
		if err := trust(t, wider, certificate(t, wider), address.String(), time.Now()); err == nil {
			t.Errorf("the authority can stand for %s", address)
		}
	}
}

// TestAuthority_isRenewed checks that the server's certificate is renewed while it runs,
// under the same authority, and that the authority is renewed at a start.
func TestAuthority_isRenewed(t *testing.T) {
	begin := time.Now()
	now := begin
	clock := func() time.Time { return now }
	s := &state{dir: t.TempDir()}
	ca, _ := openState(t, s, clock)
	first := certificate(t, ca)
	now = begin.Add(servingLife - servingRest - time.Hour)
	if certificate(t, ca) != first {
		t.Error("the certificate is renewed too early")
	}
	now = begin.Add(servingLife - servingRest + time.Hour)
	if next := certificate(t, ca); next == first {
		t.Error("the certificate is not renewed")
	} else if err := trust(t, ca, next, "localhost", begin.Add(servingLife+time.Hour)); err != nil {
		t.Errorf("the renewed certificate: %v", err)
	}

	now = begin.Add(authorityLife - authorityRest - time.Hour)
	if same, made := openState(t, s, clock); made || !bytes.Equal(same.pem, ca.pem) {
		t.Error("the authority is renewed too early")
	}
	now = begin.Add(authorityLife - authorityRest + time.Hour)
	next, made := openState(t, s, clock)
	if !made || bytes.Equal(next.pem, ca.pem) {
		t.Error("the authority is not renewed")
	}
	if again, made := openState(t, s, clock); made || !bytes.Equal(again.pem, next.pem) {
		t.Error("the renewed authority does not stay")
	}
	if err := trust(t, next, certificate(t, next), "localhost", now); err != nil {
		t.Error(err)
	}
}

// TestAuthority_isOneForAll starts several servers at the same time: they agree on one
// authority.
func TestAuthority_isOneForAll(t *testing.T) {
	s := &state{dir: t.TempDir()}
	const servers = 16
	found := make([]*authority, servers)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			var err error
			if found[i], _, err = s.openAuthority(time.Now); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, a := range found {
		if a == nil || !bytes.Equal(a.pem, found[0].pem) {
			t.Fatal("servers have different authorities")
		}
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 1 {
		t.Errorf("in the folder there are %v, %v, want the authority alone", left, err)
	}
}

// TestAuthority_badFilesStay checks that a broken file is kept, since the user may need
// it, and that errors do not quote it.
func TestAuthority_badFilesStay(t *testing.T) {
	s := &state{dir: t.TempDir()}
	ca, _ := openState(t, s, time.Now)
	good, err := os.ReadFile(s.authorityFile())
	if err != nil {
		t.Fatal(err)
	}
	other, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keyOf := func(pair []byte) []byte { return pair[bytes.Index(pair, []byte("-----BEGIN PRIVATE")):] }
	for name, bad := range map[string][]byte{
		"empty": nil, "no PEM": []byte("hunter2"), "no key": ca.pem, "no certificate": keyOf(good), "another's key": append(bytes.Clone(ca.pem), keyOf(other)...),
		"cut off": good[:len(good)-60],
	} {
		if err := os.WriteFile(s.authorityFile(), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.openAuthority(time.Now)
		if err == nil || !strings.Contains(err.Error(), s.authorityFile()) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error that names the file", name, err)
		}
		if now, err := os.ReadFile(s.authorityFile()); err != nil || !bytes.Equal(now, bad) {
			t.Errorf("%s: the file is another now, %v", name, err)
		}
	}
}
