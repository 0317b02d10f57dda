// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

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
)

// ErrLocked is returned for encrypted data whose key is not available.
var ErrLocked = errors.New("the key is not available")

// Keys encrypts the data keys of segments, snapshots and dictionaries.
type Keys interface {
	// Wrap encrypts a data key.
	Wrap(ctx context.Context, dataKey []byte) ([]byte, error)
	// Unwrap decrypts a data key that Wrap has encrypted.
	Unwrap(ctx context.Context, wrapped []byte) ([]byte, error)
}

// ParseKeys parses keys, one for each line. The source is for messages.
func ParseKeys(source string, text []byte) (Keys, error) {
	var keys LocalKeys
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

// LocalKeys are keys that this process has in memory.
type LocalKeys []*Seal

// Wrap implements [Keys].
func (k LocalKeys) Wrap(_ context.Context, dataKey []byte) ([]byte, error) {
	return k[0].Encrypt(k[0].name[:], dataKey, k[0].name[:]), nil
}

// Unwrap implements [Keys].
func (k LocalKeys) Unwrap(_ context.Context, wrapped []byte) ([]byte, error) {
	for _, key := range k {
		if rest, ok := bytes.CutPrefix(wrapped, key.name[:]); ok {
			return key.Decrypt(rest, key.name[:])
		}
	}
	return nil, ErrLocked
}

const dataKeySize = 32

// Seal encrypts with AES-256-GCM and random nonces. A key is used for one segment,
// snapshot or dictionary: far fewer than the 2^32 records that such nonces are good for.
type Seal struct {
	aead cipher.AEAD
	// name identifies the key, and does not reveal it.
	name [8]byte
}

func newSeal(key []byte) *Seal {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the callers check the size
	}
	s := &Seal{}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	sum := sha256.Sum256(append([]byte("watershed key name\x00"), key...))
	copy(s.name[:], sum[:])
	return s
}

// Encrypt appends encrypted text to prefix. The associated data must be the same in Decrypt.
func (s *Seal) Encrypt(prefix, text, associated []byte) []byte {
	nonce := make([]byte, s.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	out := append(bytes.Clone(prefix), nonce...)
	return s.aead.Seal(out, nonce, text, associated)
}

// Decrypt returns the text that Encrypt has appended.
func (s *Seal) Decrypt(sealed, associated []byte) ([]byte, error) {
	n := s.aead.NonceSize()
	if len(sealed) < n {
		return nil, io.ErrUnexpectedEOF
	}
	return s.aead.Open(nil, sealed[:n], sealed[n:], associated)
}

// Associated returns the data that an encrypted record is bound to.
func Associated(id Digest, key string, version uint64) []byte {
	b := binary.LittleEndian.AppendUint64(id[:], version)
	return append(b, key...)
}

// NewDataKey returns a new key and its encrypted form.
func NewDataKey(k Keys) (*Seal, []byte, error) {
	if k == nil {
		return nil, nil, ErrLocked
	}
	key := make([]byte, dataKeySize)
	_, _ = rand.Read(key) // never fails
	wrapped, err := k.Wrap(context.Background(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("encrypt a data key: %w", err)
	}
	return newSeal(key), wrapped, nil
}

// OpenDataKey returns the key with an encrypted form.
func OpenDataKey(k Keys, wrapped []byte) (*Seal, error) {
	if k == nil {
		return nil, ErrLocked
	}
	key, err := k.Unwrap(context.Background(), wrapped)
	if err == nil && len(key) != dataKeySize {
		err = fmt.Errorf("data key has %d bytes", len(key))
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt a data key: %w: %w", ErrLocked, err)
	}
	return newSeal(key), nil
}
