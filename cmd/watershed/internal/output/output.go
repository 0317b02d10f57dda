// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package output has the flag -o of all commands, and encodes documents in its formats.
//
// The rule for -o: the default is a format for people, table if the output is a table and text if it is
// not, and every command with -o also has json and yaml, each one document with all of the output.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/cmd/watershed/internal/completion"
)

// The values of -o.
const (
	Table = "table"
	Text  = "text"
	// Wide is a table with more columns.
	Wide = "wide"
	JSON = "json"
	YAML = "yaml"
)

// Format is the value of -o. It implements [pflag.Value].
type Format struct {
	value string
	all   []string
}

// AddFlag adds -o to a command. The formats for people are given, the first is the default; JSON and
// YAML are added.
func (f *Format) AddFlag(cmd *cobra.Command, forPeople ...string) {
	f.value, f.all = forPeople[0], append(slices.Clone(forPeople), JSON, YAML)
	cmd.Flags().VarP(f, "output", "o", "the `format` of the output: "+f.names())
	completion.Flag(cmd, "output", completion.Fixed(f.all...))
}

// names returns the formats for texts.
func (f *Format) names() string {
	last := len(f.all) - 1
	return strings.Join(f.all[:last], ", ") + " or " + f.all[last]
}

// String returns the selected format.
func (f *Format) String() string { return f.value }

// Type returns the type of the flag.
func (f *Format) Type() string { return "string" }

// Set selects a format. It returns an error if the command does not have it.
func (f *Format) Set(name string) error {
	if !slices.Contains(f.all, name) {
		return fmt.Errorf("use %s", f.names())
	}
	f.value = name
	return nil
}

// IsDocument reports whether the output is one document, for programs.
func (f *Format) IsDocument() bool { return f.value == JSON || f.value == YAML }

// Write writes a value as the document that is selected: indented JSON, or YAML.
func (f *Format) Write(out io.Writer, value any) error {
	var text []byte
	var err error
	if f.value == YAML {
		text, err = yaml.Marshal(value)
	} else if text, err = json.MarshalIndent(value, "", "  "); err == nil {
		text = append(text, '\n')
	}
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}
