// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// errLocked is returned for encrypted data whose key is not available.
var errLocked = errors.New("the key is not available")

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
	return parseKeys("key file "+path, text)
}

// KeysFromEnv reads keys from an environment variable, in the form of [KeysFromFile].
func KeysFromEnv(name string) (Keys, error) {
	return parseKeys("environment variable "+name, []byte(os.Getenv(name)))
}

// parseKeys parses keys, one for each line. The source is for messages.
func parseKeys(source string, text []byte) (Keys, error) {
	var keys localKeys
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil || len(key) != dataKeySize {
			return nil, fmt.Errorf("disk: %s: key %d is not 32 bytes in base64", source, len(keys)+1)
		}
		keys = append(keys, newSeal(key))
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("disk: %s has no key", source)
	}
	return keys, nil
}

// localKeys are keys that this process has in memory.
type localKeys []*seal

func (k localKeys) Wrap(_ context.Context, dataKey []byte) ([]byte, error) {
	return k[0].close(k[0].name[:], dataKey, k[0].name[:]), nil
}

func (k localKeys) Unwrap(_ context.Context, wrapped []byte) ([]byte, error) {
	for _, key := range k {
		if rest, ok := bytes.CutPrefix(wrapped, key.name[:]); ok {
			return key.open(rest, key.name[:])
		}
	}
	return nil, errLocked
}

const dataKeySize = 32

// seal encrypts with AES-256-GCM and random nonces. A key is used for one segment,
// snapshot or dictionary: far fewer than the 2^32 records that such nonces are good for.
type seal struct {
	aead cipher.AEAD
	// name identifies the key, and does not reveal it.
	name [8]byte
}

func newSeal(key []byte) *seal {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the callers check the size
	}
	s := &seal{}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	sum := sha256.Sum256(append([]byte("watershed key name\x00"), key...))
	copy(s.name[:], sum[:])
	return s
}

// close appends encrypted text to prefix. The associated data must be the same in open.
func (s *seal) close(prefix, text, associated []byte) []byte {
	nonce := make([]byte, s.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	out := append(bytes.Clone(prefix), nonce...)
	return s.aead.Seal(out, nonce, text, associated)
}

func (s *seal) open(sealed, associated []byte) ([]byte, error) {
	n := s.aead.NonceSize()
	if len(sealed) < n {
		return nil, io.ErrUnexpectedEOF
	}
	return s.aead.Open(nil, sealed[:n], sealed[n:], associated)
}

// associated returns the data that an encrypted record is bound to.
func associated(id digest, key string, version uint64) []byte {
	b := binary.LittleEndian.AppendUint64(id[:], version)
	return append(b, key...)
}

// newDataKey returns a new key and its encrypted form.
func newDataKey(k Keys) (*seal, []byte, error) {
	if k == nil {
		return nil, nil, errLocked
	}
	key := make([]byte, dataKeySize)
	_, _ = rand.Read(key) // never fails
	wrapped, err := k.Wrap(context.Background(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("encrypt a data key: %w", err)
	}
	return newSeal(key), wrapped, nil
}

// openDataKey returns the key with an encrypted form.
func openDataKey(k Keys, wrapped []byte) (*seal, error) {
	if k == nil {
		return nil, errLocked
	}
	key, err := k.Unwrap(context.Background(), wrapped)
	if err == nil && len(key) != dataKeySize {
		err = fmt.Errorf("data key has %d bytes", len(key))
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt a data key: %w: %w", errLocked, err)
	}
	return newSeal(key), nil
}
