// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/watershed-project/watershed/cmd/watershed/internal/usage"
)

// Set is a set of settings. The zero value is not usable, see [NewSet].
type Set struct {
	flags *pflag.FlagSet
	keys  catalog
	// Clusters are the clusters that the file describes.
	Clusters []Cluster
	// clustersAt is the place of the list of clusters in the file.
	clustersAt Position
}

// NewSet returns a set without settings.
func NewSet() *Set {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	return &Set{flags: flags}
}

// Section is the settings under one heading of the help text of a command. Settings are declared in a
// section, so that none is without one.
type Section struct {
	set  *Set
	name string
}

// Section returns the section with a name, such as "Clusters".
func (s *Set) Section(name string) Section { return Section{s, name} }

// String declares a text.
func (s Section) String(p *string, path, flag, value, usage string) *Key {
	s.set.flags.StringVar(p, flag, value, usage)
	return s.add(path, flag)
}

// Strings declares a list. The flag has several items, separated by commas.
func (s Section) Strings(p *[]string, path, flag string, value []string, usage string) *Key {
	s.set.flags.StringSliceVar(p, flag, value, usage)
	return s.add(path, flag)
}

// Repeated declares a list. The flag has one item, which may have commas, and is repeated.
func (s Section) Repeated(p *[]string, path, flag, usage string) *Key {
	s.set.flags.StringArrayVar(p, flag, nil, usage)
	return s.add(path, flag)
}

// Bool declares a switch.
func (s Section) Bool(p *bool, path, flag string, value bool, usage string) *Key {
	s.set.flags.BoolVar(p, flag, value, usage)
	return s.add(path, flag)
}

// Int declares a number.
func (s Section) Int(p *int, path, flag string, value int, usage string) *Key {
	s.set.flags.IntVar(p, flag, value, usage)
	return s.add(path, flag)
}

// Int64 declares a number.
func (s Section) Int64(p *int64, path, flag string, value int64, usage string) *Key {
	s.set.flags.Int64Var(p, flag, value, usage)
	return s.add(path, flag)
}

// Duration declares a duration.
func (s Section) Duration(p *time.Duration, path, flag string, value time.Duration, usage string) *Key {
	s.set.flags.DurationVar(p, flag, value, usage)
	return s.add(path, flag)
}

func (s Section) add(path, flag string) *Key {
	k := &Key{Path: path, Flag: s.set.flags.Lookup(flag)}
	usage.SetSection(k.Flag, s.name)
	s.set.keys = append(s.set.keys, k)
	return k
}

// Keys returns the settings in the order of their declarations.
func (s *Set) Keys() []*Key { return s.keys }

// AddTo adds the flags of the settings to those of a command.
func (s *Set) AddTo(flags *pflag.FlagSet) {
	for _, k := range s.keys {
		flags.AddFlag(k.Flag)
	}
}

// IsSet reports whether the setting of a flag has a value because the flag, its environment
// variable or the file has one. The set has been loaded.
func (s *Set) IsSet(flag string) bool { return s.keys.byFlag(flag).origin.IsSet() }

// Load determines the value of each setting. The flags have been parsed. Name and content are
// those of the file; a nil content means that there is none. Variable returns the value of an
// environment variable; an empty one counts as not set.
func (s *Set) Load(name string, content []byte, variable func(string) string) error {
	var problems Problems
	var f *file
	if content != nil {
		f, problems = parse(name, content, s.keys)
	}
	for _, k := range s.keys {
		if p := s.load(k, f, variable); p != nil {
			problems = append(problems, p)
		}
	}
	if f != nil {
		s.Clusters, s.clustersAt = f.clusters, f.clustersAt
	}
	return problems.orNil()
}

// load determines the value of one setting.
func (s *Set) load(k *Key, f *file, variable func(string) string) error {
	where, name := "", k.Flag.Name
	switch value := variable(k.Variable()); {
	case k.Flag.Changed:
		k.origin = Origin{Flag: name}
		where = fmt.Sprintf("--%s %s", name, k.Flag.Value)
	case value != "":
		k.origin = Origin{Variable: k.Variable()}
		where = fmt.Sprintf("%s=%s", k.Variable(), value)
		if err := k.set(value); err != nil {
			return &Problem{Flag: name, Where: where, Text: "want " + k.kind().String()}
		}
	case f != nil && f.values[k] != nil:
		v := f.values[k]
		k.origin = Origin{Position: v.at}
		where = fmt.Sprintf("%s: %s", v.at, k.Path)
		if err := v.assign(k); err != nil {
			return &Problem{Flag: name, Where: where, Text: err.Error()}
		}
	default:
		return nil
	}
	if text := k.check(); text != "" {
		return &Problem{Flag: name, Where: where, Text: text}
	}
	return nil
}

// CopyFlags sets the values that flags have set in another set, of the same declarations.
func (s *Set) CopyFlags(from *Set) error {
	for i, k := range s.keys {
		source := from.keys[i].Flag
		if !source.Changed {
			continue
		}
		var err error
		if k.kind() == list {
			err = k.slice().Replace(from.keys[i].slice().GetSlice())
		} else {
			err = k.Flag.Value.Set(source.Value.String())
		}
		if err != nil {
			return fmt.Errorf("flag --%s: %w", source.Name, err)
		}
		k.Flag.Changed = true
	}
	return nil
}

// Changes returns the settings whose values differ from those of another set, of the same
// declarations.
func (s *Set) Changes(from *Set) []*Key {
	var changed []*Key
	for i, k := range s.keys {
		if k.Flag.Value.String() != from.keys[i].Flag.Value.String() {
			changed = append(changed, k)
		}
	}
	return changed
}

// Locate adds to errors of [About] the places that their values come from. All of the errors,
// which may be nil or [Problems], become one.
func (s *Set) Locate(errs ...error) error {
	var all Problems
	for _, err := range errs {
		var several Problems
		switch {
		case err == nil:
			continue
		case errors.As(err, &several):
			for _, one := range several {
				all = append(all, s.locate(one))
			}
		default:
			all = append(all, s.locate(err))
		}
	}
	return all.orNil()
}

// locate adds the place to one error.
func (s *Set) locate(err error) error {
	var p *Problem
	if !errors.As(err, &p) || p.Where != "" || p.Flag == "" {
		return err
	}
	k := s.keys.byFlag(p.Flag)
	if k == nil {
		return err
	}
	switch o := k.origin; {
	case o.Variable != "":
		return &Problem{Flag: p.Flag, Where: o.Variable, Text: p.Text}
	case o.Position != Position{}:
		return &Problem{Flag: p.Flag, Where: o.Position.String() + ": " + k.Path, Text: p.Text}
	}
	return err
}
