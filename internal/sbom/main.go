// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command sbom writes the software bill of materials of a Go program: the modules that the
// linker has recorded in it, as an SPDX 2.3 document.
//
//	sbom watershed watershed.spdx.json
//
// The document is the same for the same program. Its time is SOURCE_DATE_EPOCH, in seconds since
// 1970, and 1970 without it.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM DOCUMENT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run reads a program and writes its document.
func run(program, to string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("program %s: %w", program, err)
	}
	created, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(newDocument(info, created), "", "  ")
	if err != nil {
		return fmt.Errorf("document of %s: %w", program, err)
	}
	return os.WriteFile(to, append(text, '\n'), 0o644)
}

// epoch parses a number of seconds since 1970. An empty text is 1970.
func epoch(text string) (time.Time, error) {
	if text == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, errors.New("SOURCE_DATE_EPOCH is not a number of seconds")
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// document, pkg, reference and relationship are the parts of an SPDX document that we use.
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	ID       string `json:"SPDXID"`
	Name     string `json:"name"`
	Version  string `json:"versionInfo,omitempty"`
	Download string `json:"downloadLocation"`
	Analyzed bool   `json:"filesAnalyzed"`
	// Source has the checksum of the module in Go's own form, which SPDX does not have.
	Source     string      `json:"sourceInfo,omitempty"`
	References []reference `json:"externalRefs"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

// newDocument describes a program.
func newDocument(info *buildinfo.BuildInfo, created time.Time) *document {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	name := strings.Join([]string{path.Base(info.Path), settings["GOOS"], settings["GOARCH"]}, "-")
	d := &document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: fmt.Sprintf("https://%s/sbom/%s-%s", info.Main.Path, name, version(&info.Main)),
		Creation: creation{
			created.Format(time.RFC3339),
			[]string{"Tool: watershed-sbom", "Organization: The Watershed Authors"},
		},
	}
	d.add("Main", &info.Main)
	d.relate(d.ID, "DESCRIBES", "SPDXRef-Main")
	for i, m := range info.Deps {
		switch {
		case m.Replace != nil:
			m = m.Replace
		case version(m) == devel:
			// Another module of the workspace. It is built from the commit of the program, and published with it.
			m = &debug.Module{Path: m.Path, Version: info.Main.Version}
		}
		d.depend(fmt.Sprintf("Module-%d", i+1), m)
	}
	d.depend("Go", &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")})
	return d
}

// add adds the package of a module.
func (d *document) add(id string, m *debug.Module) {
	p := pkg{
		ID: "SPDXRef-" + id, Name: m.Path, Version: version(m), Download: "NOASSERTION",
		References: []reference{
			{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(version(m), "+", "%2B")},
		},
	}
	if m.Sum != "" {
		p.Source = "go.sum " + m.Sum
	}
	d.Packages = append(d.Packages, p)
}

// depend adds a package that the program contains.
func (d *document) depend(id string, m *debug.Module) {
	d.add(id, m)
	d.relate("SPDXRef-Main", "DEPENDS_ON", "SPDXRef-"+id)
}

func (d *document) relate(element, kind, related string) {
	d.Relationships = append(d.Relationships, relationship{element, kind, related})
}

// devel stands for the version of a module that has none.
const devel = "devel"

// version returns the version of a module, or devel if it has none.
func version(m *debug.Module) string {
	if m.Version == "" || m.Version == "(devel)" {
		return devel
	}
	return m.Version
}
