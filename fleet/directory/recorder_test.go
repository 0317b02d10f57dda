// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
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
	"github.com/watershed-project/watershed/internal/expect"
)

const (
	// testTimeout is how long a test waits for something that should take no time.
	testTimeout = time.Minute
	// testInterval is how often tests poll files.
	testInterval = 10 * time.Millisecond
	// quietPeriod is how long a test waits to be sure that nothing is reported.
	quietPeriod = 400 * time.Millisecond
)

// recorder records the reports of a directory.
type recorder struct {
	t       *testing.T
	mu      sync.Mutex
	all     [][]fleet.Entry
	changed chan struct{}
}

// follow follows a directory until the end of the test, and checks that its reports are
// well formed.
func follow(t *testing.T, d fleet.Directory) *recorder {
	t.Helper()
	seen := newRecorder(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Follow(ctx, seen.notify) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Follow: %v", err)
			}
		case <-time.After(testTimeout):
			t.Error("Follow does not return")
		}
	})
	return seen
}

func newRecorder(t *testing.T) *recorder { return &recorder{t: t, changed: make(chan struct{}, 1)} }

func (d *recorder) notify(entries []fleet.Entry) {
	last := ""
	for _, e := range entries {
		switch {
		case e.Name == "" || strings.Contains(e.Name, "/") || e.Name <= last:
			d.t.Errorf("reported %q after %q", e.Name, last)
		case (e.Config == nil) == (e.Err == nil) || (e.Access == "") == (e.Err == nil):
			d.t.Errorf("reported %s with configuration %t, access %q and error %v", e.Name, e.Config != nil, e.Access,
				e.Err)
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

// count returns the number of reports.
func (d *recorder) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

// history returns all reports.
func (d *recorder) history() [][]fleet.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// last returns the last report by name.
func (d *recorder) last() map[string]fleet.Entry {
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

// until waits until the last report is as it should be.
func (d *recorder) until(what string, ok func(map[string]fleet.Entry) bool) map[string]fleet.Entry {
	d.t.Helper()
	deadline := time.After(testTimeout)
	for {
		if last := d.last(); last != nil && ok(last) {
			return last
		}
		select {
		case <-d.changed:
		case <-deadline:
			d.t.Fatalf("%s: the last report is %v", what, describe(d.last()))
		}
	}
}

// names waits until the last report has these names.
func (d *recorder) names(names ...string) map[string]fleet.Entry {
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

// quiet fails if anything is reported during the quiet period.
func (d *recorder) quiet(what string) {
	d.t.Helper()
	before := d.count()
	time.Sleep(quietPeriod) // nothing may be reported in this time
	if d.count() != before {
		d.t.Fatalf("%s: reported %v", what, describe(d.last()))
	}
}

func describe(m map[string]fleet.Entry) []string {
	var all []string
	for name, e := range m {
		all = append(all, fmt.Sprintf("%s %.8s %v", name, e.Access, e.Err))
	}
	return all
}

// logBuffer is a log that a test reads while it is written.
type logBuffer struct{ expect.Output }

// has waits until the log has a text.
func (l *logBuffer) has(t *testing.T, text string) {
	t.Helper()
	expect.Soon(t, "the log has "+text, func() bool { return strings.Contains(l.String(), text) })
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// kubeconfigWith returns a kubeconfig with a context, a cluster and a user of every
// name, after change.
func kubeconfigWith(change func(*clientcmdapi.Config), names ...string) []byte {
	k := clientcmdapi.NewConfig()
	for _, n := range names {
		k.Clusters[n] = &clientcmdapi.Cluster{
			Server: "https://" + strings.ToLower(
				strings.NewReplacer("/", "-", ":", "-", "@", "-", "%", "-", " ", "-", "\t", "-", "\u202e",
					"-").Replace(n),
			) + ".example.com",
		}
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

// fileClock is the modification time of the next file, in milliseconds after an hour
// ago. Files with a recent modification time would be read at every poll.
var fileClock atomic.Int64

// write writes a file in place.
func write(t *testing.T, data []byte, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	must(t, os.WriteFile(file, data, 0o600))
	at := time.Now().Add(-time.Hour).Add(time.Duration(fileClock.Add(1)) * time.Millisecond)
	must(t, os.Chtimes(file, at, at))
	return file
}

// replace writes a file beside the given one and renames it, as careful programs do.
func replace(t *testing.T, data []byte, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	next := write(t, data, filepath.Dir(file), ".next")
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// certificate returns a new self-signed certificate and its key.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	bytes, err := x509.MarshalECPrivateKey(private)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes})
}
