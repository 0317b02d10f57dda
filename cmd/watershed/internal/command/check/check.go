// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package check is the command watershed check: it checks the settings of serve and the clusters, and
// prints what to do about each problem.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/workqueue"

	"github.com/watershed-project/watershed/cmd/watershed/internal/completion"
	"github.com/watershed-project/watershed/cmd/watershed/internal/output"
	"github.com/watershed-project/watershed/cmd/watershed/internal/preflight"
	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/cmd/watershed/internal/status"
	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
)

const (
	// checksAtOnce limits how many clusters are checked at once.
	checksAtOnce = 16
	// sourcesTimeout limits how long the sources of clusters may take.
	sourcesTimeout = 30 * time.Second
)

const long = `Check finds out whether serve would work with the same settings: whether they are valid, its
addresses are free, its files can be read and written and its sources can be read (one check:
configuration), and for each cluster, or for the clusters that --cluster names, whether

  name            no two clusters have it
  credentials     they can be used, and do not expire soon
  connection      the API server answers, with a valid certificate
  authentication  the API server accepts the credentials
  discovery       the resources to mirror are served
  permissions     the credentials may list and watch them
  reviews         the credentials may create token and access reviews, for callers
  callers         the address is one of https, and does not add credentials to their requests
  group           the credentials may hold a Lease, in the cluster of --group-cluster
  stability       a watch stays open for a while
  clock           the clocks agree
  speed           the API server answers in time
  version         the API server is not newer than this program

It prints one line for each check. A line that is not ok says what to do. The exit code is
1 if a check fails. Nothing is changed in the clusters.`

// options are the flags of check. They include all settings of serve.
type options struct {
	serve    *settings.Settings
	clusters []string
	output   output.Format
	// observe is how long a watch must stay open.
	observe time.Duration
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	o := options{serve: settings.New()}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether clusters can be mirrored, and say what to do if not",
		Long:  long,
		Example: `  watershed check
  watershed check --cluster prod-eu
  watershed check --kubeconfig-dir /etc/clusters --resources 'pods,*.apps' --listen :7443
  watershed check -o json | jq '.checks[] | select(.outcome == "FAIL")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.Root().DisplayName())
		},
	}
	flags := cmd.Flags()
	o.serve.AddFlags(flags)
	flags.DurationVar(&o.observe, "observe", 2*time.Second, "how long a watch must stay open; 0 leaves out the check")
	flags.StringArrayVar(&o.clusters, "cluster", nil, "the `name` of a cluster to check; may be repeated (default all)")
	o.output.AddFlag(cmd, output.Text)
	completion.Flag(cmd, "context", completion.Contexts)
	return cmd
}

// errFailed is the error of a run in which checks failed. They have been printed.
var errFailed = errors.New("checks failed")

// run runs all checks and prints their results.
func (o *options) run(ctx context.Context, out io.Writer, program string) error {
	p := &printer{out: out, sign: terminal.Is(out), color: terminal.HasColor(out), quiet: o.output.IsDocument()}
	entries, contexts, configuration := o.entries(ctx, o.clusters)
	p.print(configuration)
	opts := &preflight.Options{
		Fleet: o.serve.FleetOptions(slog.New(slog.DiscardHandler)), PassThrough: o.serve.PassThrough,
		Open:         !isLoopbackAddress(o.serve.Listen),
		GroupCluster: o.serve.Group.Cluster, GroupNamespace: o.serve.Group.Namespace(),
		Contexts: contexts, Kubeconfig: o.serve.Sources.Kubeconfig, Observe: o.observe, Program: program,
	}
	if o.serve.Keys.IsSet("resources") {
		opts.Named = o.serve.Resources
	}
	checkClusters(ctx, entries, opts, p)
	if o.output.IsDocument() {
		if err := p.document(&o.output); err != nil {
			return err
		}
	} else {
		p.summary(len(entries))
	}
	if p.failed > 0 {
		return fmt.Errorf("%w: %d of %d", errFailed, p.failed, len(p.all))
	}
	return nil
}

// entries reads the sources, and returns the clusters that are named, their contexts, and the
// result of the check of the configuration.
func (o *options) entries(ctx context.Context, names []string) ([]fleet.Entry, map[string]string, preflight.Result) {
	result := preflight.Result{Check: "configuration", Outcome: preflight.Good}
	fail := func(err error, remedy string) ([]fleet.Entry, map[string]string, preflight.Result) {
		result.Outcome, result.Message, result.Remedy = preflight.Bad, err.Error(), remedy
		return nil, nil, result
	}
	if err := o.serve.Load(); err != nil {
		return fail(err, "correct the settings; watershed config print says where each comes from")
	}
	discard := slog.New(slog.DiscardHandler)
	opened, err := o.serve.Sources.Open(discard)
	if err != nil {
		return fail(err, "correct the settings of the sources of clusters")
	}
	clusters := opened.Join(discard)
	entries, err := readEntries(ctx, clusters)
	if err != nil {
		return fail(err, "look whether the sources can be read")
	}
	if len(entries) == 0 {
		return fail(errors.New("the sources have no clusters"), "add a cluster to one of them: "+clusters.String())
	}
	for _, name := range names {
		if !slices.ContainsFunc(entries, func(e fleet.Entry) bool { return e.Name == name }) {
			return fail(fmt.Errorf("cluster %q not found", name),
				"name one of those that the sources have: "+entryNames(entries))
		}
	}
	result.Message = fmt.Sprintf("%s from %v", status.Counted(len(entries), "cluster"), clusters)
	if err := errors.Join(o.serve.StartErrors(ctx), unreadSources(clusters)); err != nil {
		// The clusters can be checked all the same.
		result.Outcome, result.Message = preflight.Bad, strings.ReplaceAll(err.Error(), "\n", "; ")
		result.Remedy = "correct the settings; serve would end with this error, or not have all clusters"
	}
	if len(names) > 0 {
		entries = slices.DeleteFunc(entries, func(e fleet.Entry) bool { return !slices.Contains(names, e.Name) })
	}
	return entries, clusterContexts(opened), result
}

// unreadSources returns an error that names the sources that have not reported.
func unreadSources(clusters *directory.Join) error {
	var errs []error
	for _, s := range clusters.Sources() {
		switch {
		case s.Reported:
		case s.Err != nil:
			errs = append(errs, fmt.Errorf("source %s cannot be read: %w", s.Name, s.Err))
		default:
			errs = append(errs, fmt.Errorf("source %s has not answered", s.Name))
		}
	}
	return errors.Join(errs...)
}

// readEntries returns the first report of a directory.
func readEntries(ctx context.Context, d fleet.Directory) ([]fleet.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, sourcesTimeout)
	defer cancel()
	var (
		first []fleet.Entry
		read  bool
	)
	err := d.Follow(ctx, func(entries []fleet.Entry) {
		if !read {
			first, read = entries, true
			cancel()
		}
	})
	if err == nil && !read {
		err = fmt.Errorf("no source of clusters has answered within %s", sourcesTimeout)
	}
	return first, err
}

// clusterContexts returns the contexts of the clusters that come from a kubeconfig.
func clusterContexts(s *settings.OpenedSources) map[string]string {
	contexts := map[string]string{}
	if s.Kubeconfig == nil {
		return contexts
	}
	found, err := s.Kubeconfig.Read()
	if err != nil {
		return contexts
	}
	for _, c := range found {
		contexts[c.Cluster] = c.Name
	}
	return contexts
}

func entryNames(entries []fleet.Entry) string {
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return status.Names(names, 20)
}

// isLoopbackAddress reports whether only this machine can connect to an address of serve.
func isLoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && serving.IsLoopbackHost(host)
}

// checkClusters checks clusters at once, and prints their results in order.
func checkClusters(ctx context.Context, entries []fleet.Entry, opts *preflight.Options, p *printer) {
	results := make([]chan []preflight.Result, len(entries))
	for i := range entries {
		results[i] = make(chan []preflight.Result, 1)
	}
	var checking sync.WaitGroup
	defer checking.Wait()
	checking.Go(func() {
		workqueue.ParallelizeUntil(context.Background(), checksAtOnce, len(entries), func(i int) {
			results[i] <- preflight.Cluster(ctx, entries[i], opts)
		})
	})
	for _, one := range results {
		p.print(<-one...)
	}
}

// printer prints results.
type printer struct {
	out io.Writer
	// sign uses signs instead of words, color colours them, and quiet prints nothing until
	// the end.
	sign, color, quiet bool
	all                []preflight.Result
	failed, warned     int
}

// signs are what a terminal shows for an outcome.
var signs = map[preflight.Outcome]struct {
	sign  string
	style terminal.Style
}{preflight.Good: {"✓", terminal.Green}, preflight.Warning: {"!", terminal.Yellow}, preflight.Bad: {"✗", terminal.Red}}

// print prints a line for each result.
func (p *printer) print(results ...preflight.Result) {
	for _, r := range results {
		p.all = append(p.all, r)
		switch r.Outcome {
		case preflight.Bad:
			p.failed++
		case preflight.Warning:
			p.warned++
		case preflight.Good:
		}
		if !p.quiet {
			fmt.Fprintln(p.out, p.line(r))
		}
	}
}

// line returns a result on one line.
func (p *printer) line(r preflight.Result) string {
	begin := fmt.Sprintf("%-7s", r.Outcome)
	if p.sign {
		begin = signs[r.Outcome].sign
	}
	if p.color {
		begin = signs[r.Outcome].style.Text(begin)
	}
	subject := r.Check
	if r.Cluster != "" {
		subject = r.Cluster + " " + r.Check
	}
	text := fmt.Sprintf("%s %s: %s", begin, subject, r.Message)
	if r.Remedy != "" {
		text += "; do: " + r.Remedy
	}
	return text
}

// summary prints the totals.
func (p *printer) summary(clusters int) {
	fmt.Fprintf(p.out, "%s of %s: %d ok, %s, %d failed\n", status.Counted(len(p.all), "check"),
		status.Counted(clusters, "cluster"),
		len(p.all)-p.failed-p.warned, status.Counted(p.warned, "warning"), p.failed)
}

// document prints all results as JSON or YAML.
func (p *printer) document(format *output.Format) error {
	err := format.Write(p.out, struct {
		Checks   []preflight.Result `json:"checks"`
		Warnings int                `json:"warnings"`
		Failed   int                `json:"failed"`
	}{p.all, p.warned, p.failed})
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	return nil
}
