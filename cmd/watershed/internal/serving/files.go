// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// reloadPeriod is how often files are read again. A change is found by content, so it
	// does not matter whether a file is written, replaced, or reached by a symbolic link
	// that changes, as in a Secret that Kubernetes mounts.
	reloadPeriod = 10 * time.Second
	// maxPEM limits the bytes of a file.
	maxPEM = 1 << 20
)

// Files is a certificate with its key in files, in PEM. It follows changes of the files. If
// the files do not contain a pair that matches, because one of them is not written yet, say,
// it keeps the last certificate and logs that once.
type Files struct {
	certFile, keyFile string
	logger            *slog.Logger
	current           atomic.Pointer[tls.Certificate]

	// cert and key are the content of the files when they were last read. Only Run and
	// OpenFiles use them.
	cert, key []byte
	// failure is the last error that was logged, "" if the files were good since.
	failure string
}

// OpenFiles reads a certificate with the certificates of its issuers, and its key.
func OpenFiles(certFile, keyFile string, logger *slog.Logger) (*Files, error) {
	f := &Files{certFile: certFile, keyFile: keyFile, logger: logger}
	if _, err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// GetCertificate returns the certificate.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.current.Load(), nil
}

// Run follows changes of the files until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	for timer.Sleep(ctx, reloadPeriod) == nil {
		f.reload()
	}
	return nil
}

// reload reads the files again, and logs a change.
func (f *Files) reload() {
	changed, err := f.load()
	switch {
	case err != nil && err.Error() != f.failure:
		f.failure = err.Error()
		f.logger.Error("cannot reload the server's certificate: the previous one stays in use", "err", err)
	case err == nil && (changed || f.failure != ""):
		f.failure = ""
		leaf := f.current.Load().Leaf
		f.logger.Info("server's certificate reloaded", "file", f.certFile, "serial", leaf.SerialNumber.Text(16),
			"notAfter", leaf.NotAfter)
	}
}

// load reads the files, and uses their content if it has changed and is a pair.
func (f *Files) load() (changed bool, err error) {
	cert, err := readPEM(f.certFile)
	if err != nil {
		return false, fmt.Errorf("certificate: %w", err)
	}
	key, err := readPEM(f.keyFile)
	if err != nil {
		return false, fmt.Errorf("key: %w", err)
	}
	if f.cert != nil && bytes.Equal(cert, f.cert) && bytes.Equal(key, f.key) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		// The parser has read the key, so its error is left out.
		return false, fmt.Errorf("certificate %s and key %s are not a pair in PEM", f.certFile, f.keyFile)
	}
	f.current.Store(&pair)
	f.cert, f.key = cert, key
	return true, nil
}

// errLargePEM is returned for a file that is larger than maxPEM.
var errLargePEM = errors.New("file is larger than 1 MiB")

// readPEM reads a file of bounded size.
func readPEM(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxPEM+1))
	if err == nil && len(content) > maxPEM {
		err = fmt.Errorf("%s: %w", path, errLargePEM)
	}
	return content, err
}
