// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// BuildChanged builds the program under a name with one source file changed: pairs are texts that the
// file has once, each followed by the text that replaces it. The file itself is not written.
func BuildChanged(name, source string, pairs ...string) (string, error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	for i := 0; i < len(pairs); i += 2 {
		if n := strings.Count(string(text), pairs[i]); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, want once", source, pairs[i], n)
		}
	}
	dir, err := os.MkdirTemp("", "watershed-changed-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(overlay, replaced, 0o600),
		os.WriteFile(changed, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o600)); err != nil {
		return "", err
	}
	return Build(name, "-overlay", overlay)
}
