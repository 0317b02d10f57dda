// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package version is the command watershed version.
package version

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/build"
	"github.com/watershed-project/watershed/cmd/watershed/internal/output"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
)

// versionTimeout limits how long version waits for a server.
const versionTimeout = 3 * time.Second

// versions is the output of version as a document.
type versions struct {
	Client string `json:"client"`
	// Server is "" if no server can be reached.
	Server string `json:"server,omitempty"`
}

// options are the flags of version.
type options struct {
	connection apiclient.Options
	client     bool
	output     output.Format
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program, and of a running server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.Root().Name())
		},
	}
	o.connection.AddFlags(cmd)
	cmd.Flags().BoolVar(&o.client, "client", false, "do not ask a server")
	o.output.AddFlag(cmd, output.Text)
	return cmd
}

// run prints the versions. If no flag names a server it is not an error that none is running.
func (o *options) run(ctx context.Context, out, trouble io.Writer, name string) error {
	v := versions{Client: build.Version()}
	if !o.client {
		var err error
		v.Server, err = o.server(ctx)
		switch {
		case err != nil && o.connection.Named():
			return err
		case err != nil && !errors.Is(err, state.ErrNotServing):
			terminal.PrintError(trouble, err)
		}
	}
	if o.output.IsDocument() {
		return o.output.Write(out, v)
	}
	fmt.Fprintln(out, name, v.Client)
	if v.Server != "" {
		fmt.Fprintln(out, "server", v.Server)
	}
	return nil
}

// server returns the version of the server.
func (o *options) server(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	c, err := o.connection.Open()
	if err != nil {
		return "", err
	}
	defer c.Close()
	r, err := c.Report(ctx, "")
	if err != nil {
		return "", err
	}
	return r.Version, nil
}
