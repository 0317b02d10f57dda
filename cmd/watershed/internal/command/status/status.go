// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package status is the command watershed status.
package status

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/output"
	"github.com/watershed-project/watershed/cmd/watershed/internal/status"
	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/internal/timer"
)

// long is the help text of status.
const long = `Status prints the clusters of a running server, one line each, then the problems with
what to do about each, and totals:

  STATE      connecting, syncing, live or stale: a part of the copy is not current
  VERSION    the version of the API server
  RESOURCES  how many of the mirrored resources have finished their first list
  OBJECTS    objects in the copy, and during the first sync how many are expected
  MEMORY     memory of the objects
  READERS    watches that the copy answers
  HEARD      the time since the cluster last sent something
  STALE      for how long a part of the copy has not been current
  PROBLEM    the reason of the first problem, and the number of others

` + apiclient.Help + `

Clusters that you may not read are left out.

With -w a terminal shows the table live, and other outputs receive the lines of
clusters whose state, version, resources or problem change.`

// options are the flags of status.
type options struct {
	connection apiclient.Options
	clusters   []string
	output     output.Format
	watch      bool
	// every is the time between two requests of -w.
	every time.Duration
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the clusters of a running server and their problems",
		Long:  long,
		Example: `  watershed status
  watershed status -w
  watershed status --cluster prod-eu --cluster prod-us -o wide
  watershed status -o json | jq '.clusters[] | select(.state != "live")'
  watershed status --context watershed-fleet
  watershed status --server https://replica.example:7443 --context prod-eu`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.Root().DisplayName())
		},
	}
	o.connection.AddFlags(cmd)
	flags := cmd.Flags()
	o.connection.AddClusterFlag(cmd, &o.clusters)
	o.output.AddFlag(cmd, output.Table, output.Wide)
	flags.BoolVarP(&o.watch, "watch", "w", false, "show changes until interrupted")
	flags.DurationVar(&o.every, "interval", 2*time.Second, "the time between two requests of --watch")
	return cmd
}

// run prints the status once, or until ctx ends.
func (o *options) run(ctx context.Context, out, trouble io.Writer, program string) error {
	if err := o.validate(); err != nil {
		return err
	}
	c, err := o.connection.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	read := func() (*status.Report, error) {
		r, err := c.Report(ctx, program)
		if err != nil {
			return nil, err
		}
		return r, r.Select(o.clusters)
	}
	first, err := read()
	if err != nil {
		return err
	}
	switch {
	case !o.watch:
		return o.print(out, first)
	case terminal.Is(out):
		return o.redraw(ctx, out, first, read)
	}
	return o.follow(ctx, out, trouble, first, read)
}

// validate refuses flags that do not fit together.
func (o *options) validate() error {
	if o.watch && o.output.IsDocument() {
		return fmt.Errorf("-w has no effect with -o %s: leave one of them out", &o.output)
	}
	if o.every < 100*time.Millisecond {
		return fmt.Errorf("--interval %s: use at least 100ms", o.every)
	}
	return nil
}

// print prints a report.
func (o *options) print(out io.Writer, r *status.Report) error {
	if o.output.IsDocument() {
		return o.output.Write(out, r.Clusters)
	}
	_, err := io.WriteString(out, strings.Join(r.Lines(o.wide(), terminal.HasColor(out)), "\n")+"\n")
	return err
}

// wide reports whether tables have more columns.
func (o *options) wide() bool { return o.output.String() == output.Wide }

// redraw shows reports on the screen of a terminal until ctx ends. While the server does not
// answer it keeps the last report and shows the error.
func (o *options) redraw(
	ctx context.Context, out io.Writer, r *status.Report, read func() (*status.Report, error),
) error {
	screen := terminal.OpenScreen(out)
	defer screen.Close()
	for {
		if err := screen.Draw(o.page(screen, out, r, nil)); err != nil {
			return err
		}
		next, err := o.next(ctx, read)
		for err != nil && ctx.Err() == nil {
			if err := screen.Draw(o.page(screen, out, r, err)); err != nil {
				return err
			}
			next, err = o.next(ctx, read)
		}
		if ctx.Err() != nil {
			return nil
		}
		r = next
	}
}

// page returns the lines of a screen.
func (o *options) page(screen *terminal.Screen, out io.Writer, r *status.Report, failure error) []string {
	columns, rows := screen.Size()
	if failure == nil {
		return r.Page(o.wide(), terminal.HasColor(out), columns, rows)
	}
	return append(r.Page(o.wide(), terminal.HasColor(out), columns, rows-1),
		terminal.Red.Text(failure.Error()))
}

// next waits and reads the next report.
func (o *options) next(ctx context.Context, read func() (*status.Report, error)) (*status.Report, error) {
	if err := timer.Sleep(ctx, o.every); err != nil {
		return nil, err
	}
	return read()
}

// follow prints the lines that change until ctx ends. It reports an error once for as long as
// it lasts.
func (o *options) follow(
	ctx context.Context, out, trouble io.Writer, r *status.Report, read func() (*status.Report, error),
) error {
	changes := status.NewChanges(o.wide())
	last := ""
	for {
		for _, line := range changes.Next(r) {
			if _, err := fmt.Fprintln(out, line); err != nil {
				return err
			}
		}
		next, err := o.next(ctx, read)
		for err != nil && ctx.Err() == nil {
			if text := err.Error(); text != last {
				last = text
				terminal.PrintError(trouble, err)
			}
			next, err = o.next(ctx, read)
		}
		if ctx.Err() != nil {
			return nil
		}
		r, last = next, ""
	}
}
