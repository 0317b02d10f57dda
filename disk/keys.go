// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"context"
	"fmt"
	"os"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// Keys encrypts the data keys with which encrypted mirrors are written. Each segment of a
// log, snapshot and dictionary has a data key of its own, so both methods are called
// rarely. The implementations here read keys from a file or an environment variable; a
// key management service is another.
type Keys interface {
	// Wrap encrypts a data key.
	Wrap(ctx context.Context, dataKey []byte) ([]byte, error)
	// Unwrap decrypts a data key that Wrap has encrypted.
	Unwrap(ctx context.Context, wrapped []byte) ([]byte, error)
}

// KeysFromFile reads keys from a file: one for each line, 32 bytes in base64. The first
// encrypts, and all decrypt, so that a key can be replaced.
func KeysFromFile(path string) (Keys, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("disk: key file: %w", err)
	}
	return format.ParseKeys("key file "+path, text)
}

// KeysFromEnv reads keys from an environment variable, in the form of [KeysFromFile].
func KeysFromEnv(name string) (Keys, error) {
	return format.ParseKeys("environment variable "+name, []byte(os.Getenv(name)))
}
