// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
)

// secretEntries caches the entries of kubeconfigs in Secrets, so that each version of a
// Secret is parsed once.
type secretEntries struct{ previous, current map[string]secretEntry }

type secretEntry struct {
	version string
	entry   fleet.Entry
}

// entry returns the entry of the kubeconfig under a key of a Secret, without a name. Its
// error does not name the Secret.
func (s *secretEntries) entry(secret *corev1.Secret, key string) fleet.Entry {
	if s.current == nil {
		s.current = make(map[string]secretEntry, len(s.previous))
	}
	id := secret.Namespace + "/" + secret.Name
	version := string(secret.UID) + " " + secret.ResourceVersion
	e, ok := s.previous[id]
	if !ok || e.version != version {
		cfg, err := secretConfig(secret.Data[key])
		e = secretEntry{version, newEntry("", cfg, err)}
	}
	s.current[id] = e
	return e.entry
}

// done ends a round. Secrets that were not used in it are dropped from the cache.
func (s *secretEntries) done() { s.previous, s.current = s.current, nil }

// secretConfig returns the client configuration of a kubeconfig from a hub. It rejects
// commands and files: a user with permission to write a Secret on the hub must not be
// able to run commands here, or to send files of this machine to a server.
func secretConfig(data []byte) (*rest.Config, error) {
	if len(data) == 0 {
		return nil, errors.New("kubeconfig is missing")
	}
	k, err := parseKubeconfig(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	context, err := currentContext(k)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if c := k.Contexts[context]; c != nil {
		if user := k.AuthInfos[c.AuthInfo]; user != nil {
			switch {
			case user.Exec != nil || user.AuthProvider != nil:
				return nil, errors.New("kubeconfig: a credential plugin is not accepted from a hub")
			case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "":
				return nil, errors.New("kubeconfig: credentials in files are not accepted from a hub")
			}
		}
		if cluster := k.Clusters[c.Cluster]; cluster != nil && cluster.CertificateAuthority != "" {
			return nil, errors.New("kubeconfig: a certificate authority in a file is not accepted from a hub")
		}
	}
	cfg, err := newFileStates().config(k, context)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig context %q: %w", context, err)
	}
	return cfg, nil
}
