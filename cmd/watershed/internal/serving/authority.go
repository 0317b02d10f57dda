// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/statefile"
	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// authorityRest is how much of a signer's life is left when its successor is created.
	// Clients have from then until handover to get another kubeconfig.
	authorityRest = 365 * 24 * time.Hour
	// handover is how much of a signer's life is left when its successor takes over.
	handover = servingLife
	// servingRest is how much of the life of the server's certificate is left when it is
	// replaced.
	servingRest = 30 * 24 * time.Hour
)

// Authority signs the server's certificate, for servers whose operator has no other
// authority. Clients trust it because their kubeconfig contains it. It is valid for
// loopback addresses and the hosts in its options only.
//
// Certificates and keys are in one file, so that they always match, whichever process
// writes it. The file usually has one signer. A year before that expires, a second one is
// added. From then on kubeconfigs contain both, and after nine months the second signs.
// Clients with a kubeconfig from that time need no other one. The server's own certificate
// never leaves memory, so each start creates another one.
//
// A file that is replaced while the server runs takes effect without a restart.
type Authority struct {
	path   string
	hosts  hosts
	logger *slog.Logger
	now    func() time.Time

	mu sync.Mutex
	// signers are those of the file. The first signs.
	signers []*signer
	serving *tls.Certificate
	// content is the file when it was last read.
	content []byte
	// failure is the last error that was logged, "" if there was none since.
	failure string
}

// AuthorityOptions configure an [Authority]. The zero value, and nil, are the defaults.
type AuthorityOptions struct {
	// Hosts are names and addresses of the server besides those of loopback.
	Hosts []string
	// Now returns the time. Default: time.Now.
	Now func() time.Time
	// Logger receives all messages. Default: slog.Default().
	Logger *slog.Logger
}

// OpenAuthority reads an authority. If there is none, or if it is not valid for all hosts,
// it creates one, and created is true: clients then need another kubeconfig. Processes that
// start at the same time agree on one.
func OpenAuthority(path string, opts *AuthorityOptions) (a *Authority, created bool, err error) {
	if opts == nil {
		opts = &AuthorityOptions{}
	}
	a = &Authority{
		path: path, hosts: loopback().add(opts.Hosts), logger: cmp.Or(opts.Logger, slog.Default()), now: opts.Now,
	}
	if a.now == nil {
		a.now = time.Now
	}
	signers, content, err := readSigners(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		created = true
		if err := a.create(); err != nil {
			return nil, false, fmt.Errorf("create a certificate authority: %w", err)
		}
		signers, content, err = readSigners(path)
	case err == nil && !signers[0].permits(a.hosts):
		created = true
		a.hosts = a.hosts.add(signers[0].hosts().texts())
		if signers, content, err = a.write(nil, a.hosts); err != nil {
			return nil, false, fmt.Errorf("replace the certificate authority: %w", err)
		}
	}
	if err != nil {
		return nil, false, err
	}
	a.signers, a.content = signers, content
	if err := a.rotateLocked(); err != nil {
		return nil, false, err
	}
	return a, created, nil
}

// texts returns the hosts as text.
func (h hosts) texts() []string {
	texts := slices.Clone(h.names)
	for _, ip := range h.addresses {
		texts = append(texts, ip.String())
	}
	return texts
}

// create creates an authority unless another process has just done so.
func (a *Authority) create() error {
	first, err := newSigner(a.hosts, a.now())
	if err != nil {
		return err
	}
	content, err := formatSigners([]*signer{first})
	if err != nil {
		return err
	}
	return statefile.Create(a.path, content)
}

// write adds a new signer to others, and writes the file.
func (a *Authority) write(others []*signer, h hosts) ([]*signer, []byte, error) {
	next, err := newSigner(h, a.now())
	if err != nil {
		return nil, nil, err
	}
	signers := append(slices.Clone(others), next)
	content, err := formatSigners(signers)
	if err != nil {
		return nil, nil, err
	}
	return signers, content, statefile.Replace(a.path, content)
}

// readSigners reads the file of an authority.
func readSigners(path string) ([]*signer, []byte, error) {
	content, err := readPEM(path)
	if err != nil {
		return nil, nil, fmt.Errorf("authority: %w", err)
	}
	signers, err := parseSigners(content)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate authority %s: %w: delete it, and serve creates a new one", path, err)
	}
	return signers, content, nil
}

// ReadBundle returns the certificates in the file of an authority, in PEM. Clients trust a
// server if one of them has signed its certificate.
func ReadBundle(path string) ([]byte, error) {
	signers, _, err := readSigners(path)
	if err != nil {
		return nil, err
	}
	return bundle(signers), nil
}

func bundle(signers []*signer) []byte {
	var text []byte
	for _, s := range signers {
		text = append(text, s.pem()...)
	}
	return text
}

// Bundle returns the authority's certificates in PEM.
func (a *Authority) Bundle() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bundle(a.signers)
}

// IsIn reports whether a bundle of certificates in PEM has one of the authority: a
// kubeconfig with this bundle is one of this server, or of an earlier run of it.
func (a *Authority) IsIn(pemBundle []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for block, rest := pem.Decode(pemBundle); block != nil; block, rest = pem.Decode(rest) {
		if slices.ContainsFunc(a.signers, func(s *signer) bool { return bytes.Equal(s.certificate.Raw, block.Bytes) }) {
			return true
		}
	}
	return false
}

// GetCertificate returns the server's certificate, and replaces it when it is about to
// expire.
func (a *Authority) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.serving != nil && a.serving.Leaf.NotAfter.After(now.Add(servingRest)) {
		return a.serving, nil
	}
	next, err := a.signers[0].issue(a.hosts, now)
	if err != nil {
		return nil, fmt.Errorf("create the server's certificate: %w", err)
	}
	a.serving = next
	return next, nil
}

// Run follows changes of the file, and rotates signers, until ctx ends.
func (a *Authority) Run(ctx context.Context) error {
	for timer.Sleep(ctx, reloadPeriod) == nil {
		a.renew()
	}
	return nil
}

// renew adopts a changed file, rotates signers, and logs an error once.
func (a *Authority) renew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.adoptLocked()
	if err == nil {
		err = a.rotateLocked()
	}
	if err == nil {
		a.failure = ""
		return
	}
	if err.Error() != a.failure {
		a.failure = err.Error()
		a.logger.Error("cannot renew the certificate authority: the previous one stays in use", "err", err)
	}
}

// adoptLocked uses the signers of the file if it has changed.
func (a *Authority) adoptLocked() error {
	content, err := readPEM(a.path)
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	if bytes.Equal(content, a.content) {
		return nil
	}
	signers, content, err := readSigners(a.path)
	if err != nil {
		return err
	}
	if !signers[0].permits(a.hosts) {
		return fmt.Errorf("certificate authority %s is not valid for all names of this server", a.path)
	}
	a.signers, a.content, a.serving = signers, content, nil
	a.logger.Info("certificate authority reloaded: clients need the output of watershed kubeconfig", "file", a.path)
	return nil
}

// rotateLocked adds a signer when the first one has a year left, and drops the first one
// when little of its life is left.
func (a *Authority) rotateLocked() error {
	now := a.now()
	if len(a.signers) == 1 && a.signers[0].certificate.NotAfter.Before(now.Add(authorityRest)) {
		signers, content, err := a.write(a.signers, a.signers[0].hosts())
		if err != nil {
			return fmt.Errorf("renew the certificate authority: %w", err)
		}
		a.signers, a.content = signers, content
		a.logger.Warn("certificate authority is about to expire: clients need the output of watershed kubeconfig "+
			"before then",
			"file", a.path, "expires", signers[0].certificate.NotAfter, "replaced",
			signers[0].certificate.NotAfter.Add(-handover))
	}
	if len(a.signers) > 1 && a.signers[0].certificate.NotAfter.Before(now.Add(handover)) {
		content, err := formatSigners(a.signers[1:])
		if err == nil {
			err = statefile.Replace(a.path, content)
		}
		if err != nil {
			return fmt.Errorf("replace the certificate authority: %w", err)
		}
		a.signers, a.content, a.serving = a.signers[1:], content, nil
	}
	return nil
}
