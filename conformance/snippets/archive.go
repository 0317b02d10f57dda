// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package snippets

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Archive is the list of contents of an image in the format of docker save.
type Archive struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// ImageDir returns the directory with the archives that were loaded into a cluster, within the directory
// of the clusters.
func ImageDir(clusters, cluster string) string { return filepath.Join(clusters, "images", cluster) }

// ReadArchive returns the only image of an archive. It must have a name.
func ReadArchive(path string) (*Archive, error) {
	var images []Archive
	if err := readMember(path, "manifest.json", &images); err != nil {
		return nil, err
	}
	if len(images) != 1 || len(images[0].RepoTags) == 0 {
		return nil, fmt.Errorf("archive %s: not one image with a name: %+v", path, images)
	}
	return &images[0], nil
}

// readMember decodes a file of an archive.
func readMember(path, name string, into any) error {
	text, err := exec.Command("tar", "-xOf", path, name).Output()
	if err != nil {
		return fmt.Errorf("archive %s: %s: %w", path, name, err)
	}
	return json.Unmarshal(text, into)
}

// Unpack writes the files of an image into an empty directory, and returns its entry point.
func Unpack(path, dir string) (entrypoint []string, err error) {
	archive, err := ReadArchive(path)
	if err != nil {
		return nil, err
	}
	var image struct {
		Config struct{ Entrypoint []string } `json:"config"`
	}
	if err := readMember(path, archive.Config, &image); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "layers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if out, err := exec.Command("tar", "-C", work, "-xf", path).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("archive %s: %w: %s", path, err, out)
	}
	for _, layer := range archive.Layers {
		out, err := exec.Command("tar", "-C", dir, "-xf", filepath.Join(work, layer)).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("archive %s: layer %s: %w: %s", path, layer, err, out)
		}
	}
	if len(image.Config.Entrypoint) == 0 {
		return nil, errors.New("archive " + path + ": no entry point")
	}
	return image.Config.Entrypoint, nil
}
