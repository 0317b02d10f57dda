// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
)

const (
	// dirPatience is how long anything may take that should take no time.
	dirPatience = time.Minute
	// dirInterval is how often tests have files looked at, dirCalm how long it takes
	// to be sure that nothing is told.
	dirInterval = 10 * time.Millisecond
	dirCalm     = 400 * time.Millisecond
)

// dirTold is what a directory tells.
type dirTold struct {
	t       *testing.T
	mu      sync.Mutex
	all     [][]fleet.Entry
	changed chan struct{}
}

// dirFollow follows a directory for the time of the test, and holds it to its
// contract.
func dirFollow(t *testing.T, d fleet.Directory) *dirTold {
	t.Helper()
	told := &dirTold{t: t, changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Follow(ctx, told.tell) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Follow: %v", err)
			}
		case <-time.After(dirPatience):
			t.Error("Follow does not return")
		}
	})
	return told
}

func (d *dirTold) tell(entries []fleet.Entry) {
	last := ""
	for _, e := range entries {
		switch {
		case e.Name == "" || strings.Contains(e.Name, "/") || e.Name <= last:
			d.t.Errorf("told %q after %q", e.Name, last)
		case (e.Config == nil) == (e.Err == nil) || (e.Access == "") == (e.Err == nil):
			d.t.Errorf("told %s with configuration %t, access %q and error %v", e.Name, e.Config != nil, e.Access, e.Err)
		}
		last = e.Name
	}
	d.mu.Lock()
	d.all = append(d.all, entries)
	d.mu.Unlock()
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// times is how often something was told.
func (d *dirTold) times() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

// history is all that was told.
func (d *dirTold) history() [][]fleet.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// last is what was told last.
func (d *dirTold) last() map[string]fleet.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.all) == 0 {
		return nil
	}
	byName := map[string]fleet.Entry{}
	for _, e := range d.all[len(d.all)-1] {
		byName[e.Name] = e
	}
	return byName
}

// until waits until what was told last is as it should be.
func (d *dirTold) until(what string, ok func(map[string]fleet.Entry) bool) map[string]fleet.Entry {
	d.t.Helper()
	deadline := time.After(dirPatience)
	for {
		if last := d.last(); last != nil && ok(last) {
			return last
		}
		select {
		case <-d.changed:
		case <-deadline:
			d.t.Fatalf("%s: told last %v", what, dirText(d.last()))
		}
	}
}

// names waits until the clusters have these names.
func (d *dirTold) names(names ...string) map[string]fleet.Entry {
	d.t.Helper()
	return d.until(fmt.Sprint("names ", names), func(m map[string]fleet.Entry) bool {
		for _, n := range names {
			if _, ok := m[n]; !ok {
				return false
			}
		}
		return len(m) == len(names)
	})
}

// calm fails if anything is told.
func (d *dirTold) calm(what string) {
	d.t.Helper()
	before := d.times()
	time.Sleep(dirCalm)
	if d.times() != before {
		d.t.Fatalf("%s: told %v", what, dirText(d.last()))
	}
}

func dirText(m map[string]fleet.Entry) []string {
	var all []string
	for name, e := range m {
		all = append(all, fmt.Sprintf("%s %.8s %v", name, e.Access, e.Err))
	}
	return all
}

// dirLog is a log that can be read.
type dirLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *dirLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *dirLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *dirLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// dirKubeconfig has a context, a cluster and a user of every name; change is for
// what else is to be in it.
func dirKubeconfig(change func(*clientcmdapi.Config), names ...string) []byte {
	k := clientcmdapi.NewConfig()
	for _, n := range names {
		k.Clusters[n] = &clientcmdapi.Cluster{Server: "https://" + strings.ToLower(strings.NewReplacer("/", "-", ":", "-", "@", "-", "%", "-").Replace(n)) + ".example.com"}
		k.AuthInfos[n] = &clientcmdapi.AuthInfo{Token: "token-of-" + n}
		k.Contexts[n] = &clientcmdapi.Context{Cluster: n, AuthInfo: n}
	}
	if len(names) > 0 {
		k.CurrentContext = names[0]
	}
	if change != nil {
		change(k)
	}
	data, err := clientcmd.Write(*k)
	if err != nil {
		panic(err)
	}
	return data
}

// dirClock is when a file is said to have been written last: a while ago, since what
// is new is read again and again.
var dirClock atomic.Int64

// dirWrite writes a file in place.
func dirWrite(t *testing.T, data []byte, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	dirMust(t, os.WriteFile(file, data, 0o600))
	at := time.Now().Add(-time.Hour).Add(time.Duration(dirClock.Add(1)) * time.Millisecond)
	dirMust(t, os.Chtimes(file, at, at))
	return file
}

// dirRename writes a file beside and moves it there, as careful programs do.
func dirRename(t *testing.T, data []byte, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	next := dirWrite(t, data, filepath.Dir(file), ".next")
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func dirMust(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dirCertificate is a new certificate, its own authority, and its key.
func dirCertificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	dirMust(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	dirMust(t, err)
	bytes, err := x509.MarshalECPrivateKey(private)
	dirMust(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes})
}
