// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// quiet drops all messages.
var quiet = slog.New(slog.DiscardHandler)

// openAuthority opens an authority at a time.
func openAuthority(t *testing.T, path string, now func() time.Time, hosts ...string) (a *Authority, created bool) {
	t.Helper()
	a, created, err := OpenAuthority(path, &AuthorityOptions{Hosts: hosts, Now: now, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return a, created
}

// trust verifies the server's certificate as a client would.
func trust(t *testing.T, bundle []byte, leaf *tls.Certificate, host string, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the authority is no certificate")
	}
	_, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now})
	return err
}

func certificate(t *testing.T, ca *Authority) *tls.Certificate {
	t.Helper()
	leaf, err := ca.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// TestAuthority_stays checks that the authority is the same after a restart, cannot be
// read by other users, and is valid for this machine only.
func TestAuthority_stays(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "authority.pem")
	first, created := openAuthority(t, path, time.Now)
	if !created {
		t.Error("the first start has not created an authority")
	}
	second, created := openAuthority(t, path, time.Now)
	if created || !bytes.Equal(first.Bundle(), second.Bundle()) {
		t.Error("the second start has another authority")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, %v", path, info.Mode().Perm(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("in the folder there are %v, %v, want the authority alone", left, err)
	}
	third, created := openAuthority(t, path, time.Now, "127.1.2.3")
	if created {
		t.Error("another loopback address needs another authority")
	}
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "127.1.2.3"} {
		if err := trust(t, first.Bundle(), certificate(t, third), host, time.Now()); err != nil {
			t.Errorf("as %s: %v", host, err)
		}
	}
	for _, host := range []string{"192.0.2.1", "2001:db8::1", "example.com"} {
		leaf, err := first.signers[0].issue(loopback().add([]string{host}), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := trust(t, first.Bundle(), leaf, host, time.Now()); err == nil {
			t.Errorf("the authority can stand for %s", host)
		}
	}
}

// TestAuthority_hosts checks that an authority is replaced if it is not valid for a new
// host, that it stays valid for the former ones, and that it is valid for no others.
func TestAuthority_hosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.pem")
	openAuthority(t, path, time.Now)
	if _, created := openAuthority(t, path, time.Now, "Replica.Example.com", "192.0.2.1"); !created {
		t.Error("the authority is not replaced")
	}
	ca, created := openAuthority(t, path, time.Now, "*.example.net", "2001:db8::1")
	if !created {
		t.Error("the authority is not replaced")
	}
	if again, created := openAuthority(t, path, time.Now, "192.0.2.1", "replica.example.com", "2001:db8::1"); created ||
		!bytes.Equal(again.Bundle(), ca.Bundle()) {
		t.Error("the authority is replaced although it is valid for all hosts")
	}
	for _, host := range []string{
		"replica.example.com", "a.example.net", "192.0.2.1", "2001:db8::1", "localhost", "127.0.0.1", "::1",
	} {
		if err := trust(t, ca.Bundle(), certificate(t, ca), host, time.Now()); err != nil {
			t.Errorf("as %s: %v", host, err)
		}
	}
	for _, host := range []string{"example.com", "192.0.2.2", "2001:db8::2"} {
		leaf, err := ca.signers[0].issue(loopback().add([]string{host}), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := trust(t, ca.Bundle(), leaf, host, time.Now()); err == nil {
			t.Errorf("the authority can stand for %s", host)
		}
	}
}

// TestAuthority_rotates checks that the server's certificate is renewed while it runs, and
// that its authority is: at every time a client with a kubeconfig that is at most nine
// months old trusts the server.
func TestAuthority_rotates(t *testing.T) {
	begin := time.Now()
	now := begin
	path := filepath.Join(t.TempDir(), "authority.pem")
	ca, _ := openAuthority(t, path, func() time.Time { return now })
	const day = 24 * time.Hour
	type kubeconfig struct {
		from   time.Time
		bundle []byte
	}
	kept := []kubeconfig{{begin, ca.Bundle()}}
	leaves, bundles := 1, 1
	last := certificate(t, ca)
	for now = begin; now.Before(begin.Add(25 * 365 * day)); now = now.Add(30 * day) {
		ca.renew()
		leaf := certificate(t, ca)
		if leaf != last {
			leaves++
			last = leaf
		}
		text, err := ReadBundle(path)
		if err != nil || !bytes.Equal(text, ca.Bundle()) {
			t.Fatalf("the file has another bundle, %v", err)
		}
		if !bytes.Equal(text, kept[len(kept)-1].bundle) {
			bundles++
		}
		kept = append(kept, kubeconfig{now, text})
		for len(kept) > 0 && kept[0].from.Before(now.Add(-270*day)) {
			kept = kept[1:]
		}
		for _, k := range kept {
			if err := trust(t, k.bundle, leaf, "localhost", now); err != nil {
				t.Fatalf("after %v, with a kubeconfig from %v: %v", now.Sub(begin), k.from.Sub(begin), err)
			}
		}
	}
	// The certificate lasts 60 days or a little more. Each rotation has two bundles.
	if leaves < 130 || leaves > 160 || bundles != 5 {
		t.Errorf("%d certificates and %d bundles in 25 years", leaves, bundles)
	}
	again, created := openAuthority(t, path, func() time.Time { return now })
	if created || !again.IsIn(ca.Bundle()) {
		t.Error("a restart has another authority")
	}
}

// TestAuthority_startsAfterItsEnd checks that an authority that has expired while no server
// ran is replaced at the start.
func TestAuthority_startsAfterItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.pem")
	openAuthority(t, path, time.Now)
	later := func() time.Time { return time.Now().Add(signerLife + time.Hour) }
	ca, _ := openAuthority(t, path, later)
	if err := trust(t, ca.Bundle(), certificate(t, ca), "localhost", later()); err != nil || len(ca.signers) != 1 {
		t.Errorf("%d signers, %v", len(ca.signers), err)
	}
}

// TestAuthority_followsItsFile checks that a replaced file takes effect without a restart,
// and that a bad one does not.
func TestAuthority_followsItsFile(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "authority.pem"), filepath.Join(dir, "other.pem")
	log := &strings.Builder{}
	ca, _, err := OpenAuthority(path, &AuthorityOptions{
		Hosts:  []string{"example.com"},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	before := ca.Bundle()
	original, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	openAuthority(t, other, time.Now)
	narrow, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	next, _ := openAuthority(t, other, time.Now, "example.com")
	good, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"not PEM": []byte("hunter2"), "half": good[:len(good)/2], "not valid for the host": narrow,
	} {
		log.Reset()
		writeFile(t, path, bad)
		ca.renew()
		ca.renew()
		if !bytes.Equal(ca.Bundle(), before) || strings.Count(log.String(), "level=ERROR") != 1 ||
			strings.Contains(log.String(), "hunter2") {
			t.Errorf("%s: log:\n%s", name, log)
		}
		if err := trust(t, before, certificate(t, ca), "example.com", time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		writeFile(t, path, original)
		ca.renew()
	}
	writeFile(t, path, good)
	ca.renew()
	if err := trust(t, next.Bundle(), certificate(t, ca), "example.com", time.Now()); err != nil {
		t.Error(err)
	}
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAuthority_isOneForAll starts several servers at the same time: they agree on one
// authority.
func TestAuthority_isOneForAll(t *testing.T) {
	dir := t.TempDir()
	const servers = 16
	found := make([]*Authority, servers)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			var err error
			if found[i], _, err = OpenAuthority(filepath.Join(dir, "authority.pem"), nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, a := range found {
		if a == nil || !bytes.Equal(a.Bundle(), found[0].Bundle()) {
			t.Fatal("servers have different authorities")
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("in the folder there are %v, %v, want the authority alone", left, err)
	}
}

// TestAuthority_badFilesStay checks that a broken file is kept, since the user may need
// it, and that errors do not quote it.
func TestAuthority_badFilesStay(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "authority.pem")
	ca, _ := openAuthority(t, path, time.Now)
	openAuthority(t, filepath.Join(dir, "other.pem"), time.Now)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(filepath.Join(dir, "other.pem"))
	if err != nil {
		t.Fatal(err)
	}
	keyOf := func(pair []byte) []byte { return pair[bytes.Index(pair, []byte("-----BEGIN PRIVATE")):] }
	for name, bad := range map[string][]byte{
		"empty": nil, "no PEM": []byte("hunter2"), "no key": ca.Bundle(), "no certificate": keyOf(good),
		"another's key": append(ca.Bundle(), keyOf(other)...),
		"cut off":       good[:len(good)-60], "a bad second": append(bytes.Clone(good), "hunter2"...),
	} {
		writeFile(t, path, bad)
		_, _, err := OpenAuthority(path, nil)
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error that names the file", name, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, bad) {
			t.Errorf("%s: the file is another now, %v", name, err)
		}
	}
}
