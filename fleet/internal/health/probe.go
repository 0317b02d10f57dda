// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package health

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"github.com/watershed-project/watershed/kube"
)

const (
	// KubernetesMinor is the minor version of Kubernetes whose types this program has. An
	// API server that is newer may have fields that the types lack.
	KubernetesMinor = 37
	// SkewLimit is how far the clocks of a cluster and of this program may differ before
	// that is a problem.
	SkewLimit = 30 * time.Second
	// SlowLimit is how long an API server may take for its version, the cheapest request,
	// before it is considered slow.
	SlowLimit = 2 * time.Second
	// ProbeAgain is the least time between two probes, and the wait before the next discovery
	// while a probe found a problem.
	ProbeAgain = time.Minute
	// probeTimeout limits a probe. Changes of types are not discovered meanwhile.
	probeTimeout = 10 * time.Second
	// maxVersion limits how many bytes of the version document are read.
	maxVersion = 64 << 10
)

// Probe is what a single request shows about an API server.
type Probe struct {
	// Version is the version of the API server, such as "v1.37.1". It is "" if the server
	// does not allow reading it.
	Version string
	// Skew is how far the clock of the API server is ahead of this program's. The Date
	// header has seconds only, so differences of less than a second are 0.
	Skew time.Duration
	// Took is how long the server took to answer.
	Took time.Duration
	// At is the time of the probe, zero if there was none.
	At time.Time
}

// NewProbe requests the version of a cluster.
func NewProbe(ctx context.Context, cluster *kube.Cluster) (Probe, error) {
	req := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Path: "/version"},
		Header: http.Header{},
	}).WithContext(ctx)
	req.Header.Set("Accept", "application/json")
	began := time.Now()
	resp, err := cluster.RoundTrip(req)
	if err != nil {
		return Probe{}, err
	}
	defer resp.Body.Close()
	p := Probe{Took: time.Since(began), At: time.Now()}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		p.Skew = skew(date, began, p.At)
	}
	if resp.StatusCode == http.StatusOK {
		var info version.Info
		if err := json.NewDecoder(io.LimitReader(resp.Body, maxVersion)).Decode(&info); err != nil {
			return p, fmt.Errorf("version of cluster %s: %w", cluster.Name(), err)
		}
		p.Version = info.GitVersion
	}
	return p, nil
}

// skew returns how far a date is from the time between began and ended in which it was
// made. A date stands for a whole second.
func skew(date, began, ended time.Time) time.Duration {
	switch {
	case date.After(ended):
		return date.Sub(ended).Truncate(time.Second)
	case date.Add(time.Second).Before(began):
		return date.Add(time.Second).Sub(began).Truncate(time.Second)
	}
	return 0
}

// IsSkewed reports whether the clocks differ by more than [SkewLimit].
func (p Probe) IsSkewed() bool { return p.Skew.Abs() > SkewLimit }

// IsSlow reports whether the server took longer than [SlowLimit].
func (p Probe) IsSlow() bool { return p.Took > SlowLimit }

// IsNewer reports whether the API server has a later minor version than the types of this
// program.
func (p Probe) IsNewer() bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(p.Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return err == nil && (major != "1" || n > KubernetesMinor)
}

// Prober probes a cluster after each discovery. All methods are safe for concurrent use. The zero
// value is ready.
type Prober struct {
	// mu guards the result of the last probe of the connection in use, zero if there was none.
	mu   sync.Mutex
	last Probe
}

// Last returns the result of the last probe.
func (p *Prober) Last() Probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Reset drops the result of the last probe: another connection is in use.
func (p *Prober) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = Probe{}
}

// Probe records what a request to the cluster shows, at most once a minute. Errors are left to
// discovery, which has just succeeded, except that a server that does not answer is slow. The
// function "current" returns the connection in use.
func (p *Prober) Probe(ctx context.Context, current func() *kube.Cluster) {
	cluster, last := current(), p.Last()
	if cluster == nil || time.Since(last.At) < ProbeAgain {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	began := time.Now()
	now, err := NewProbe(ctx, cluster)
	switch {
	case err != nil && ctx.Err() != nil:
		now = last
		now.Took, now.At = time.Since(began), time.Now()
	case err != nil && now.At.IsZero():
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if current() == cluster {
		p.last = now
	}
}

// FoundProblem reports whether the last probe found a problem, so that the next one should come
// soon to see its end.
func (p *Prober) FoundProblem() bool {
	last := p.Last()
	return last.IsSkewed() || last.IsSlow()
}
