// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// versionTimeout limits how long version waits for a server.
const versionTimeout = 3 * time.Second

// versions is the output of version as a document.
type versions struct {
	Client string `json:"client"`
	// Server is "" if no server can be reached.
	Server string `json:"server,omitempty"`
}

// versionOptions are the flags of version.
type versionOptions struct {
	connection connectionOptions
	client     bool
	output     string
}

func newVersionCommand() *cobra.Command {
	var o versionOptions
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program, and of a running server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.Root().Name())
		},
	}
	o.connection.addFlags(cmd)
	cmd.Flags().BoolVar(&o.client, "client", false, "do not ask a server")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "the `format`: json or yaml (default one line for each version)")
	completeFlag(cmd, "output", fixed(outputJSON, outputYAML))
	return cmd
}

// run prints the versions. Without --server it is not an error that none is running.
func (o *versionOptions) run(ctx context.Context, out, trouble io.Writer, name string) error {
	v := versions{Client: version()}
	if !o.client {
		var err error
		v.Server, err = o.server(ctx)
		switch {
		case err != nil && o.connection.server != "":
			return err
		case err != nil && !errors.Is(err, errNotServing):
			fmt.Fprintln(trouble, "watershed:", err)
		}
	}
	switch o.output {
	case outputTable:
		fmt.Fprintln(out, name, v.Client)
		if v.Server != "" {
			fmt.Fprintln(out, "server", v.Server)
		}
		return nil
	case outputJSON, outputYAML:
		text, err := encodeDocument(v, o.output)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	return fmt.Errorf("-o %s: use json or yaml", o.output)
}

// server returns the version of the server.
func (o *versionOptions) server(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	c, err := o.connection.open()
	if err != nil {
		return "", err
	}
	defer c.close()
	r, err := c.report(ctx, "")
	if err != nil {
		return "", err
	}
	return r.Version, nil
}

// version returns a description of the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return describe(info)
}

// describe returns the version of the module, or the commit if it was not built from a
// published version, followed by the Go version and platform: "v1.2.0 go1.26.1
// linux/amd64".
func describe(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	text := info.Main.Version
	if text == "" || text == "(devel)" {
		text = "devel"
		if revision := settings["vcs.revision"]; revision != "" {
			text += "-" + revision[:min(12, len(revision))]
		}
		if settings["vcs.modified"] == "true" {
			text += "+dirty"
		}
	}
	text += " " + info.GoVersion
	if settings["GOOS"] != "" {
		text += " " + settings["GOOS"] + "/" + settings["GOARCH"]
	}
	return strings.TrimSpace(text)
}
