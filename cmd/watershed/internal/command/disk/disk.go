// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package disk is the command watershed disk: it shows, checks and removes the files of mirrored
// objects.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/internal/storage"
)

// long and example are the help text of disk.
const (
	long = `Disk reads and checks the files of mirrored objects in the directory of --data-dir, and shows
what they have of each cluster: how many resources and objects, since when the changes are
kept, and the size. It changes nothing. With --resources it shows a line for each resource.

Everything is read, so large directories take some time. A server that uses the directory is not
disturbed, but files that it writes meanwhile may be shown as damaged.

The exit code is 1 if a file is damaged. Nothing has to be repaired: a server lists the
resources again whose files it cannot use. A damaged index is only a note: nothing is lost, but
reads of the past of one object take longer.

disk remove removes the files of clusters. No server may use the directory then.`
	example = `  watershed disk --data-dir /var/lib/watershed
  watershed disk --data-dir /var/lib/watershed --resources
  watershed disk remove --data-dir /var/lib/watershed old-cluster`
)

// options are the flags of disk.
type options struct{ settings.Storage }

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var o options
	var resources bool
	cmd := &cobra.Command{
		Use:     "disk",
		Short:   "Show, check and remove the files of mirrored objects",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.show(cmd.Context(), cmd.OutOrStdout(), resources)
		},
	}
	declare(cmd.PersistentFlags(), &o.Dir, "data-dir", "the `directory`")
	declare(cmd.Flags(), &o.KeyFile, "data-key-file", "a `file` with keys, to check encrypted objects too")
	declare(cmd.Flags(), &o.KeyEnv, "data-key-env", "the `name` of an environment variable with keys")
	declare(cmd.Flags(), &o.KMS, "data-kms", "the `address` of a KMS v2 plugin")
	cmd.Flags().BoolVar(&resources, "resources", false, "show each resource")
	cmd.AddCommand(&cobra.Command{
		Use:   "remove CLUSTER...",
		Short: "Remove the files of clusters",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return o.remove(cmd.OutOrStdout(), names)
		},
	})
	return cmd
}

// declare declares a flag whose default is the value of the environment variable that serve uses for it.
func declare(flags *pflag.FlagSet, p *string, flag, usage string) {
	variable := "WATERSHED_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	flags.StringVar(p, flag, os.Getenv(variable), usage+" (default $"+variable+")")
	flags.Lookup(flag).DefValue = "" // help names the variable and not its value
}

// errNoDirectory is returned without --data-dir.
var errNoDirectory = errors.New("no directory: use --data-dir")

// errDamaged is the end of a command that has found damaged files.
var errDamaged = errors.New("some files are damaged: a server lists these resources again")

// exists returns an error if there is no directory.
func (o *options) exists() error {
	if o.Dir == "" {
		return errNoDirectory
	}
	_, err := os.Stat(o.Dir)
	return err
}

// report reads all files.
func (o *options) report(ctx context.Context) (*storage.Report, error) {
	if err := o.exists(); err != nil {
		return nil, err
	}
	keys, closeKeys, err := o.Keys(ctx)
	if err != nil {
		return nil, err
	}
	defer closeKeys()
	return storage.Verify(o.Dir, keys)
}

// show prints what the files have.
func (o *options) show(ctx context.Context, out io.Writer, resources bool) error {
	r, err := o.report(ctx)
	if err != nil {
		return err
	}
	if r.InUse {
		fmt.Fprintln(out, "A process uses the directory.")
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if resources {
		fmt.Fprintln(w, "CLUSTER\tRESOURCE\tOBJECTS\tVERSION\tAGE\tPROBLEM")
	} else {
		fmt.Fprintln(w, "CLUSTER\tRESOURCES\tOBJECTS\tCHANGES SINCE\tSIZE\tPROBLEM")
	}
	damaged := false
	for i := range r.Clusters {
		c := &r.Clusters[i]
		objects, problem := 0, c.Err
		for _, m := range c.Mirrors {
			objects += m.Objects
			problem = errors.Join(problem, m.Err)
			if resources {
				fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", c.Name,
					schema.GroupResource{Group: m.Identity.Group, Resource: m.Identity.Resource}, m.Objects, m.Version,
					time.Since(m.Time).Round(time.Second), firstLine(m.Err))
			}
		}
		if !resources {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%.1f MB\t%s\n", c.Name, len(c.Mirrors), objects,
				c.Since.Local().Format(time.DateTime), float64(c.Bytes)/1e6, firstLine(problem))
		}
		damaged = damaged || problem != nil
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range r.Clusters {
		if c := &r.Clusters[i]; c.DamagedIndexes > 0 {
			fmt.Fprintf(out, "note: cluster %s: damaged indexes in the log: %d; nothing is lost, "+
				"but reads of the past of one object take longer\n", c.Name, c.DamagedIndexes)
		}
	}
	fmt.Fprintf(out, "clusters: %d, dictionaries: %d (%.1f MB)\n", len(r.Clusters), r.Dictionaries,
		float64(r.DictionaryBytes)/1e6)
	if damaged {
		return errDamaged
	}
	return nil
}

// remove removes the files of clusters, or nothing if one of them has none.
func (o *options) remove(out io.Writer, names []string) (err error) {
	if err := o.exists(); err != nil {
		return err
	}
	d, err := storage.Open(o.Dir, storage.Options{})
	if errors.Is(err, storage.ErrInUse) {
		return fmt.Errorf("%w %s: stop the server first", storage.ErrInUse, o.Dir)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, name := range names {
		if !d.Has(name) {
			return fmt.Errorf("%s has no files of a cluster %s", o.Dir, name)
		}
	}
	for _, name := range names {
		if failed := d.Remove(name); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		fmt.Fprintf(out, "removed the files of %s\n", name)
	}
	return err
}

// firstLine returns the first line of an error, "" for nil.
func firstLine(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
