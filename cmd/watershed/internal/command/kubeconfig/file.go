// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/statefile"
)

// encodeKubeconfig returns the text of a kubeconfig.
func encodeKubeconfig(k *clientcmdapi.Config) ([]byte, error) {
	text, err := clientcmd.Write(*k)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return text, nil
}

// writeKubeconfigFile writes a kubeconfig to a file that only its owner can read, in one
// step. If merge is true it keeps the other entries of the file, else there must not be any
// that do not belong to the same server. It returns the path of the file, which is the
// target if the file is a symbolic link.
func writeKubeconfigFile(
	path string, k *clientcmdapi.Config, merge bool, owns func(*clientcmdapi.Cluster) bool,
) (string, error) {
	path, err := linkTarget(path)
	if err != nil {
		return "", fmt.Errorf("--write: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("--write: %w", err)
	}
	unlock, err := lockKubeconfig(path)
	if err != nil {
		return "", err
	}
	defer unlock()
	old, err := readKubeconfigFile(path)
	if err != nil {
		return "", err
	}
	if merge {
		if err := mergeKubeconfig(old, k, owns); err != nil {
			return "", fmt.Errorf("--write %s: %w", path, err)
		}
		k = old
	} else if others := ownedBy(old, owns).others(old); len(others) > 0 {
		return "", fmt.Errorf("--write %s: the file has entries that do not belong to this server (%s): keep them "+
			"with --merge, or choose another file", path, summary(others))
	}
	text, err := encodeKubeconfig(k)
	if err == nil {
		err = statefile.Replace(path, text)
	}
	if err != nil {
		return "", fmt.Errorf("--write: %w", err)
	}
	return path, nil
}

// linkTarget returns the file that a path refers to, so that a symbolic link is not replaced
// by a file.
func linkTarget(path string) (string, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return filepath.EvalSymlinks(path)
}

// lockKubeconfig keeps kubectl config and other runs of this program from writing a file, by
// the lock file that kubectl uses.
func lockKubeconfig(path string) (unlock func(), err error) {
	lock := path + ".lock"
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("--write %s: another program is writing it; if none is, delete %s", path, lock)
	}
	if err != nil {
		return nil, fmt.Errorf("--write: %w", err)
	}
	_ = f.Close()
	return func() { _ = os.Remove(lock) }, nil
}

// readKubeconfigFile reads a file without resolving relative paths in it. A file that does
// not exist has no entries.
func readKubeconfigFile(path string) (*clientcmdapi.Config, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("--write: %w", err)
	}
	k, err := clientcmd.Load(text)
	if err != nil { // the error may quote a credential
		return nil, fmt.Errorf("--write %s: the file is not a kubeconfig", path)
	}
	return k, nil
}
