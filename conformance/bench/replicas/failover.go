// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// killsVariable is how many times a replica is killed.
	killsVariable = "WATERSHED_KILLS"
	failoverKills = 5
	// failoverWatches is how many watches there are, half of them of a resource that changes five times
	// a second, and failoverRate how many requests in a second.
	failoverWatches, failoverRate = 100, 100
	// failoverReady is how long both replicas are ready before the next one is killed. It is longer than
	// the time for which requests count as those of a fail-over.
	failoverReady = "8s"
)

// failover is what clients noticed when replicas were killed.
type failover struct {
	kills int
	// p99 is what 99 of 100 requests took at most that were in progress when a replica was killed or began
	// within five seconds, with their repetition, and silence the longest time without an event for a watch
	// whose resource changes five times a second; both in ms.
	p99, silence int
	// relists is how many watches listed again. retried and failed are requests that failed once and twice.
	relists, requests, retried, failed int
	reduced                            bool
}

func (f failover) String() string {
	if f.kills == 0 {
		return "No kills"
	}
	return fmt.Sprintf("%d kills under %d watches and %d requests/s: p99 of a request %d ms, longest silence %d ms, "+
		"%d watches listed again; of %d requests %d were repeated and %d failed then too",
		f.kills, failoverWatches, failoverRate, f.p99, f.silence, f.relists, f.requests, f.retried, f.failed)
}

// failoverResult matches the results of the kills that TestFailover prints.
var failoverResult = regexp.MustCompile(`failover: \d+ kills, .*`)

// measureFailover runs TestFailover of conformance/replicas, which has the load balancer and the load: two
// replicas of a real cluster, as a replica group, in memory.
func measureFailover(ctx context.Context) (f failover, err error) {
	if f.kills, err = harness.EnvInt(killsVariable, failoverKills); err != nil {
		return f, err
	}
	f.reduced = os.Getenv(killsVariable) != ""
	cmd := exec.CommandContext(ctx, "go", "test", "github.com/watershed-project/watershed/conformance/replicas", "-vet=off",
		"-count=1", "-timeout=30m", "-v", "-run=^TestFailover$/^memory$", "-failover.group", "-failover.restarts=0",
		"-failover.kills="+strconv.Itoa(f.kills), "-failover.watches="+strconv.Itoa(failoverWatches),
		"-failover.rate="+strconv.Itoa(failoverRate), "-failover.ready="+failoverReady)
	cmd.Env = append(os.Environ(), kubetest.RequiredVariable+"=required")
	text, err := cmd.CombinedOutput()
	if err != nil {
		return f, fmt.Errorf("TestFailover: %w: %s", err, text)
	}
	return f, f.read(string(text))
}

// read reads the output of TestFailover.
func (f *failover) read(text string) (err error) {
	values := map[string]int{}
	for _, field := range strings.Fields(failoverResult.FindString(text)) {
		name, value, _ := strings.Cut(field, "=")
		if n, err := strconv.Atoi(value); err == nil {
			values[name] = n
		}
	}
	number := func(name string) int {
		n, found := values[name]
		if !found {
			err = cmp.Or(err, fmt.Errorf("TestFailover printed no %s: %s", name, text))
		}
		return n
	}
	f.p99, f.silence = number("request-ms-p99"), number("silence-ms-max")
	f.relists = number("relists-busy") + number("relists-idle")
	f.requests, f.retried, f.failed = number("requests"), number("retried"), number("failed-after-retry")
	return err
}
