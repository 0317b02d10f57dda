// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package podprocess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// accountDir is where a pod finds the token of its service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// writeToken writes the files of the service account.
func (p *Process) writeToken(ctx context.Context) error {
	if mount := p.opts.Spec.AutomountServiceAccountToken; mount != nil && !*mount {
		return nil
	}
	token, err := p.client.CoreV1().ServiceAccounts(p.opts.Namespace).CreateToken(ctx,
		p.opts.Spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return writeFiles(p.Path(accountDir), map[string][]byte{
		"token": []byte(token.Status.Token), "ca.crt": p.opts.Config.CAData, "namespace": []byte(p.opts.Namespace),
	})
}

func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// volumes calls visit for each volume that the container mounts.
func (p *Process) volumes(visit func(path string, source *corev1.VolumeSource)) {
	for _, m := range p.container().VolumeMounts {
		for i := range p.opts.Spec.Volumes {
			if v := &p.opts.Spec.Volumes[i]; v.Name == m.Name {
				visit(m.MountPath, &v.VolumeSource)
			}
		}
	}
}

// emptyDirs returns the paths of the volumes of the kind emptyDir.
func (p *Process) emptyDirs() []string {
	var paths []string
	p.volumes(func(path string, source *corev1.VolumeSource) {
		if source.EmptyDir != nil {
			paths = append(paths, path)
		}
	})
	return paths
}

// Refresh mounts the ConfigMaps and Secrets as they are in the cluster now. The kubelet does so about
// every minute. Volumes of other kinds, apart from emptyDir, are an error.
func (p *Process) Refresh(ctx context.Context) error {
	p.revision++
	var problem error
	p.volumes(func(path string, source *corev1.VolumeSource) {
		files, err := p.content(ctx, source)
		if err == nil && files != nil {
			err = p.mount(path, files)
		}
		if err != nil {
			problem = errors.Join(problem, fmt.Errorf("volume at %s: %w", path, err))
		}
	})
	return problem
}

// content returns the files of a volume, or nil if it is of the kind emptyDir.
func (p *Process) content(ctx context.Context, source *corev1.VolumeSource) (map[string][]byte, error) {
	core := p.client.CoreV1()
	switch {
	case source.EmptyDir != nil:
		return nil, nil
	case source.ConfigMap != nil:
		config, err := core.ConfigMaps(p.opts.Namespace).Get(ctx, source.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		files := map[string][]byte{}
		for name, text := range config.Data {
			files[name] = []byte(text)
		}
		return files, nil
	case source.Secret != nil:
		secret, err := core.Secrets(p.opts.Namespace).Get(ctx, source.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return secret.Data, nil
	default:
		return nil, errors.New("not a ConfigMap, a Secret or an empty directory")
	}
}

// mount writes files as the kubelet does: links to files in a directory that is replaced as a whole.
func (p *Process) mount(path string, files map[string][]byte) error {
	dir := p.Path(path)
	version := fmt.Sprint("..", p.revision)
	if err := writeFiles(filepath.Join(dir, version), files); err != nil {
		return err
	}
	next, data := filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")
	if err := os.Symlink(version, next); err != nil {
		return err
	}
	if err := os.Rename(next, data); err != nil {
		return err
	}
	for name := range files {
		err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))
		if err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}
