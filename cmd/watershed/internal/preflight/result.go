// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package preflight checks whether a cluster can be mirrored: its address, certificate,
// credentials, rights, clock and version. Each check has one result, and a result that is not
// good says what to do.
//
//	for _, r := range preflight.Cluster(ctx, entry, opts) {
//		fmt.Println(r.Outcome, r.Check, r.Message, r.Remedy)
//	}
//
// All requests are reads or reviews of the caller's own rights: nothing is changed.
package preflight

import (
	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
)

// Outcome is how a check ended.
type Outcome string

const (
	// Good means that nothing is to be done.
	Good Outcome = "ok"
	// Warning means that serve works, with a limitation.
	Warning Outcome = "warning"
	// Bad means that serve does not mirror the cluster, or a part of it.
	Bad Outcome = "FAIL"
)

// Result is the result of one check.
type Result struct {
	// Cluster is the name of the cluster, "" if the check is about all of them.
	Cluster string  `json:"cluster,omitempty"`
	Check   string  `json:"check"`
	Outcome Outcome `json:"outcome"`
	// Reason is the kind of problem: a fleet.Trouble, or a reason of package replica or remedy.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	// Remedy says what to do. It is "" if the outcome is [Good].
	Remedy string `json:"remedy,omitempty"`
}

// results collects the results of one cluster.
type results struct {
	about remedy.Subject
	all   []Result
}

func (r *results) good(check, message string) {
	r.all = append(r.all, Result{Cluster: r.about.Cluster, Check: check, Outcome: Good, Message: message})
}

// problem adds a result that is not good. Resources are those that are concerned.
func (r *results) problem(outcome Outcome, check, reason, message string, resources ...string) {
	about := r.about
	about.Resources = resources
	r.all = append(r.all, Result{
		Cluster: about.Cluster,
		Check:   check,
		Outcome: outcome,
		Reason:  reason,
		Message: message,
		Remedy:  remedy.For(reason, about),
	})
}

func (r *results) bad(check, reason, message string, resources ...string) {
	r.problem(Bad, check, reason, message, resources...)
}
