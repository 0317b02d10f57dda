// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"encoding/csv"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Key is one setting: a key of the file, a flag and an environment variable.
type Key struct {
	// Path is the key in the file, with dots between the levels.
	Path string
	// Flag is the flag. Its value is that of the setting.
	Flag *pflag.Flag
	// Live means that a change takes effect while the program runs.
	Live bool

	// least is the least number or duration, nil if there is no bound, and why is the reason.
	least *int64
	why   string
	// origin is where the value comes from.
	origin Origin
}

// Reloads marks a setting that takes effect while the program runs.
func (k *Key) Reloads() *Key {
	k.Live = true
	return k
}

// AtLeast bounds a number or, in nanoseconds, a duration. Reason completes the error.
func (k *Key) AtLeast(least int64, reason string) *Key {
	k.least, k.why = &least, reason
	return k
}

// Short sets the letter that also is the flag.
func (k *Key) Short(letter string) *Key {
	k.Flag.Shorthand = letter
	return k
}

// Bare sets the value of the flag if it is used without one.
func (k *Key) Bare(value string) *Key {
	k.Flag.NoOptDefVal = value
	return k
}

// Variable returns the name of the environment variable.
func (k *Key) Variable() string {
	return "WATERSHED_" + strings.ToUpper(strings.ReplaceAll(k.Flag.Name, "-", "_"))
}

// Origin returns where the value comes from.
func (k *Key) Origin() Origin { return k.origin }

// Usage returns the meaning of the setting without the marks that pflag uses.
func (k *Key) Usage() string {
	_, usage := pflag.UnquoteUsage(k.Flag)
	return usage
}

// Value returns the value: a string, bool, int64 or []string. A duration is a string.
func (k *Key) Value() any {
	text := k.Flag.Value.String()
	switch k.kind() {
	case boolean:
		return text == "true"
	case number:
		n, _ := strconv.ParseInt(text, 10, 64) // pflag has written it
		return n
	case list:
		if items := k.slice().GetSlice(); items != nil {
			return items
		}
		return []string{}
	}
	return text
}

// slice returns the value of a list.
func (k *Key) slice() pflag.SliceValue {
	s, _ := k.Flag.Value.(pflag.SliceValue) // every value of kind list is one
	return s
}

// kind is the type of a setting.
type kind uint8

const (
	text kind = iota
	boolean
	number
	duration
	list
)

// String returns the type for errors.
func (k kind) String() string {
	switch k {
	case boolean:
		return "true or false"
	case number:
		return "a whole number"
	case duration:
		return "a duration such as 10s or 1m30s"
	case list:
		return "a list of texts"
	}
	return "a text"
}

// kind returns the type of the setting.
func (k *Key) kind() kind {
	switch k.Flag.Value.Type() {
	case "bool":
		return boolean
	case "int", "int64":
		return number
	case "duration":
		return duration
	case "stringSlice", "stringArray":
		return list
	}
	return text
}

// set parses a text, as a flag does. The items of a list are separated by commas.
func (k *Key) set(value string) error {
	if k.kind() != list {
		return k.Flag.Value.Set(value)
	}
	items, err := splitList(value)
	if err != nil {
		return err
	}
	return k.slice().Replace(items)
}

// check returns why the value is out of bounds, "" if it is not.
func (k *Key) check() string {
	if k.least == nil {
		return ""
	}
	value := k.Flag.Value.String()
	n, err := strconv.ParseInt(value, 10, 64)
	least := strconv.FormatInt(*k.least, 10)
	if k.kind() == duration {
		var d time.Duration
		d, err = time.ParseDuration(value)
		n, least = int64(d), time.Duration(*k.least).String()
	}
	if err != nil || n >= *k.least {
		return "" // set has returned the error
	}
	return "the least value is " + least + ": " + k.why
}

// splitList returns the items of a list that are separated by commas. An item with a comma is
// in quotes.
func splitList(text string) ([]string, error) {
	return csv.NewReader(strings.NewReader(text)).Read()
}
