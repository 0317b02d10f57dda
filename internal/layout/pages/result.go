// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pages

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// Folder is the folder of the result files in a checkout.
const Folder = "docs/performance/results"

// Result has the values of one benchmark.
type Result struct {
	// Date is the day of the measurement.
	Date string `json:"date"`
	// Commit has the measured code. "-dirty" behind it means that Go files differed from it.
	Commit  string  `json:"commit"`
	Machine Machine `json:"machine"`
	// Packages are the measured packages, such as ./replica. The packages of the repository that they import
	// were measured too, and are not listed.
	Packages []string `json:"packages"`
	// Origin says where the values come from if the benchmark did not write the file.
	Origin string  `json:"origin,omitempty"`
	Values []Value `json:"values"`
}

// Machine describes the machine of a measurement.
type Machine struct {
	Cores int    `json:"cores"`
	CPU   string `json:"cpu,omitempty"`
	Go    string `json:"go"`
}

// Value is one measured value. Unit is "" for a count or a ratio.
type Value struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Results are result files by name, without .json.
type Results map[string]Result

// Read reads the result files of a checkout.
func Read(checkout string) (Results, error) {
	files, err := filepath.Glob(filepath.Join(checkout, Folder, "*.json"))
	if err != nil {
		return nil, err
	}
	results := Results{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("result file %s: %w", file, err)
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("result file %s: %w", file, err)
		}
		results[strings.TrimSuffix(filepath.Base(file), ".json")] = r
	}
	return results, nil
}

// Write writes a result file into a folder, which it makes if necessary.
func (r Result) Write(folder, name string) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("result %s: %w", name, err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("result %s: %w", name, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+".json"), append(text, '\n'), 0o644)
}

// check returns an error if the result lacks something, or has a name twice.
func (r Result) check() error {
	if r.Date == "" || r.Commit == "" || len(r.Packages) == 0 || len(r.Values) == 0 {
		return fmt.Errorf("date, commit, packages and values are required")
	}
	seen := map[string]bool{}
	for _, v := range r.Values {
		switch _, known := units[v.Unit]; {
		case !valueName.MatchString(v.Name) || seen[v.Name]:
			return fmt.Errorf(
				"value %q: the name is used twice, or is not of lower-case letters, digits, dots and dashes", v.Name)
		case !known:
			return fmt.Errorf("value %s: unknown unit %q", v.Name, v.Unit)
		case math.IsNaN(v.Value) || math.IsInf(v.Value, 0):
			return fmt.Errorf("value %s: %v is not a number", v.Name, v.Value)
		}
		seen[v.Name] = true
	}
	return nil
}

// find returns the value with a name that begins with that of its file.
func (rs Results) find(name string) (Value, error) {
	file, rest, _ := strings.Cut(name, ".")
	for _, v := range rs[file].Values {
		if v.Name == rest {
			return v, nil
		}
	}
	return Value{}, fmt.Errorf("value %s: %s/%s.json does not have it", name, Folder, file)
}
