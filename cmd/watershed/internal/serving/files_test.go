// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// output is a log that a test reads while it is written.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Reset()
}

// newPair returns a certificate and its key in PEM.
func newPair(t *testing.T) (cert, key []byte) {
	t.Helper()
	s, err := newSigner(loopback(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := s.issue(loopback(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

// serial returns the serial number of the certificate in use.
func serial(t *testing.T, f *Files) string {
	t.Helper()
	c, err := f.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf.SerialNumber.Text(16)
}

// TestFiles_reload checks that changed files take effect, and that files that are not a
// pair leave the certificate in use and are logged once.
func TestFiles_reload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		cert, key := newPair(t)
		writeFile(t, certFile, cert)
		writeFile(t, keyFile, key)
		log := &output{}
		f, err := OpenFiles(certFile, keyFile, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = f.Run(ctx) }()
		before := serial(t, f)
		poll := func() {
			time.Sleep(3 * reloadPeriod)
			synctest.Wait()
		}
		if poll(); log.String() != "" {
			t.Errorf("log without a change:\n%s", log)
		}
		newCert, newKey := newPair(t)
		bad := map[string]func(){
			"another certificate": func() { writeFile(t, certFile, newCert) },
			"half a certificate":  func() { writeFile(t, certFile, newCert[:100]) },
			"half a key":          func() { writeFile(t, keyFile, newKey[:100]) },
			"an empty file":       func() { writeFile(t, certFile, nil) },
			"not a key":           func() { writeFile(t, keyFile, []byte("hunter2")) },
			"a large file":        func() { writeFile(t, keyFile, make([]byte, maxPEM+1)) },
			"no file":             func() { _ = os.Remove(keyFile) },
		}
		for name, write := range bad {
			log.Reset()
			write()
			poll()
			if serial(t, f) != before || strings.Count(log.String(), "\n") != 1 ||
				strings.Contains(log.String(), "hunter2") {
				t.Errorf("%s: log:\n%s", name, log)
			}
			writeFile(t, certFile, cert)
			writeFile(t, keyFile, key)
			poll()
			if !strings.Contains(log.String(), "reloaded") {
				t.Errorf("%s: the recovery is not logged:\n%s", name, log)
			}
		}
		writeFile(t, certFile, newCert)
		poll()
		writeFile(t, keyFile, newKey)
		poll()
		if serial(t, f) == before {
			t.Error("the new certificate is not used")
		}
		cancel()
		synctest.Wait()
	})
}

// TestFiles_secretMount checks that a Secret that Kubernetes mounts is followed: its files
// are symbolic links to a folder, which is itself a symbolic link that changes.
func TestFiles_secretMount(t *testing.T) {
	dir := t.TempDir()
	mount := func(version string) {
		t.Helper()
		folder := filepath.Join(dir, version)
		cert, key := newPair(t)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, "tls.crt"), cert)
		writeFile(t, filepath.Join(folder, "tls.key"), key)
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	mount("..1")
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := OpenFiles(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	before := serial(t, f)
	mount("..2")
	if f.reload(); serial(t, f) == before {
		t.Error("the new certificate is not used")
	}
}

// TestOpenFiles_refuses checks that a server does not start without a certificate.
func TestOpenFiles_refuses(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if _, err := OpenFiles(certFile, keyFile, quiet); err == nil || !strings.Contains(err.Error(), certFile) {
		t.Errorf("no files: %v", err)
	}
	cert, _ := newPair(t)
	_, key := newPair(t)
	writeFile(t, certFile, cert)
	writeFile(t, keyFile, key)
	if _, err := OpenFiles(certFile, keyFile, quiet); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("not a pair: %v", err)
	}
}
