// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"weak"

	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
)

// Sum is the hash of a dictionary's content. It is the name of its file.
type Sum [sha256.Size]byte

// String returns the sum in hexadecimal digits.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

const (
	// plainDictionary and sealedDictionary are the first byte of a dictionary's file.
	plainDictionary  = 'P'
	sealedDictionary = 'E'
	// SealedSuffix is the end of the name of an encrypted dictionary's file.
	SealedSuffix = ".sealed"
)

// Dictionaries are the dictionaries of a directory, shared by all its clusters. Each is in
// a file that is durable before a record names it. All methods are safe for concurrent
// use.
type Dictionaries struct {
	files  *Files
	folder string
	keys   Keys
	wake   func()

	// mu guards the fields below. Only Sweep holds it during file operations.
	mu sync.Mutex
	// durable are the dictionaries that this process has written or found. They are not
	// swept.
	durable map[dictionaryFile]bool
	// wanted are the dictionaries to write. It keeps them alive.
	wanted map[dictionaryFile]*pack.Dictionary
	// loaded are the dictionaries in use that were read from files.
	loaded map[Sum]weak.Pointer[pack.Dictionary]
}

// dictionaryFile is a dictionary in a form: objects of encrypted mirrors must not be in a
// file that is not encrypted.
type dictionaryFile struct {
	sum    Sum
	sealed bool
}

// name returns the name of the file.
func (f dictionaryFile) name() string {
	if f.sealed {
		return f.sum.String() + SealedSuffix
	}
	return f.sum.String()
}

// NewDictionaries returns the dictionaries of a folder. It calls wake when one is to be written.
func NewDictionaries(s *Files, folder string, keys Keys, wake func()) *Dictionaries {
	return &Dictionaries{
		files: s, folder: folder, keys: keys, wake: wake,
		durable: map[dictionaryFile]bool{}, wanted: map[dictionaryFile]*pack.Dictionary{},
		loaded: map[Sum]weak.Pointer[pack.Dictionary]{},
	}
}

// Ready reports whether a record may name a dictionary. If not, it is written soon.
func (d *Dictionaries) Ready(dict *pack.Dictionary, sealed bool) bool {
	f := dictionaryFile{dict.Sum(), sealed}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.durable[f] {
		return true
	}
	if d.wanted[f] == nil {
		d.wanted[f] = dict
		d.wake()
	}
	return false
}

// WriteWanted writes the dictionaries that are wanted. Records use them afterwards. A
// dictionary that cannot be written stays wanted.
func (d *Dictionaries) WriteWanted() error {
	d.mu.Lock()
	wanted := maps.Clone(d.wanted)
	d.mu.Unlock()
	var errs []error
	for f, dict := range wanted {
		if err := d.Write(dict, f.sealed); err != nil {
			errs = append(errs, fmt.Errorf("dictionary %s: %w", f.name(), err))
		}
	}
	return errors.Join(errs...)
}

// Write makes a dictionary durable, encrypted if it is for an encrypted mirror.
func (d *Dictionaries) Write(dict *pack.Dictionary, sealed bool) error {
	f := dictionaryFile{dict.Sum(), sealed}
	d.mu.Lock()
	done := d.durable[f]
	if !done {
		d.wanted[f] = dict // so that it is not swept
	}
	d.mu.Unlock()
	if done {
		return nil
	}
	path := filepath.Join(d.folder, f.name())
	if _, err := d.read(f); err != nil { // it may be damaged
		content := append([]byte{plainDictionary}, dict.Bytes()...)
		if f.sealed {
			seal, wrapped, err := NewDataKey(d.keys)
			if err != nil {
				return err
			}
			content = seal.Encrypt(keyindex.AppendText([]byte{sealedDictionary}, wrapped), content[1:], f.sum[:])
		}
		if err := os.MkdirAll(d.folder, FolderMode); err != nil {
			return err
		}
		if err := d.files.Replace(path, func(write func([]byte) error) error { return write(content) }); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.durable[f] = true
	delete(d.wanted, f)
	return nil
}

// read reads a dictionary and checks its hash.
func (d *Dictionaries) read(f dictionaryFile) ([]byte, error) {
	b, err := d.files.ReadAll(filepath.Join(d.folder, f.name()))
	if err != nil {
		return nil, err
	}
	r := keyindex.Fields{B: b}
	form := r.Byte()
	if form == sealedDictionary {
		wrapped := r.Text()
		if r.Err != nil {
			return nil, r.Err
		}
		seal, err := OpenDataKey(d.keys, wrapped)
		if err != nil {
			return nil, err
		}
		if r.B, err = seal.Decrypt(r.B, f.sum[:]); err != nil {
			return nil, err
		}
	}
	if sha256.Sum256(r.B) != f.sum || (form == sealedDictionary) != f.sealed {
		return nil, ErrChecksum
	}
	return r.B, nil
}

// load returns the dictionary with a hash. First is set if this call has read it: the
// caller then checks that an object can be unpacked with it.
func (d *Dictionaries) load(f dictionaryFile) (dict *pack.Dictionary, first bool, err error) {
	d.mu.Lock()
	dict = d.loaded[f.sum].Value()
	d.mu.Unlock()
	if dict != nil {
		return dict, false, nil
	}
	b, err := d.read(f)
	if err == nil {
		dict, err = pack.ParseDictionary(b)
	}
	if err != nil {
		return nil, false, fmt.Errorf("dictionary %s: %w", f.name(), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if other := d.loaded[f.sum].Value(); other != nil {
		return other, false, nil
	}
	for s, w := range d.loaded {
		if w.Value() == nil {
			delete(d.loaded, s)
		}
	}
	d.loaded[f.sum], d.durable[f] = weak.Make(dict), true
	return dict, true, nil
}

// unload drops a dictionary that an object cannot be unpacked with, so that the next load
// checks it again.
func (d *Dictionaries) unload(s Sum) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.loaded, s)
}

// Sweep removes the dictionaries that no file names and that this process has not used.
func (d *Dictionaries) Sweep(named map[string]bool) error {
	entries, err := os.ReadDir(d.folder)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for f := range d.durable {
		named[f.name()] = true
	}
	for f := range d.wanted {
		named[f.name()] = true
	}
	for _, e := range entries {
		if !named[e.Name()] && filepath.Ext(e.Name()) != Unfinished {
			if err := os.Remove(filepath.Join(d.folder, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
