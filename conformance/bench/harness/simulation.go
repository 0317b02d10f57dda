// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// SimulationRole is the name under which [ServeSimulation] must be among the roles of
// a benchmark that calls [StartSimulation].
const SimulationRole = "simulation"

// Simulation is a process with simulated clusters. Another process controls them with
// a [SimulationClient].
type Simulation struct {
	*Child
	// Addr is the address at which it accepts clients.
	Addr string
}

// StartSimulation starts the process and returns when it serves. The caller closes it.
func StartSimulation(ctx context.Context, benchmark string, opts simulated.Options) (*Simulation, error) {
	c, err := StartChild(ctx, benchmark, SimulationRole, opts)
	if err != nil {
		return nil, err
	}
	s := &Simulation{Child: c}
	if err := c.Answer(&s.Addr); err != nil {
		c.Close()
		return nil, fmt.Errorf("the simulated clusters did not start: %w", err)
	}
	return s, nil
}

// ServeSimulation is the [Role] of a [Simulation].
func ServeSimulation(task []byte, in io.Reader, out io.Writer) error {
	var opts simulated.Options
	if err := json.Unmarshal(task, &opts); err != nil {
		return err
	}
	s, err := simulated.New(&opts)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(l.Addr().String()); err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveSimulationClient(s, conn)
		}
	}()
	_, err = io.Copy(io.Discard, in) // until the benchmark closes it
	return err
}

// churnOrder makes pods change.
type churnOrder struct {
	// Rate is changes per second over all clusters.
	Rate    int
	Seconds int
}

// SimulatedCluster has what a client needs to reach a simulated cluster.
type SimulatedCluster struct {
	Name       string
	Host       string
	Token      string
	ServerName string
	CA         []byte
}

// Config returns the configuration of a client.
func (c SimulatedCluster) Config() *rest.Config {
	return &rest.Config{Host: c.Host, BearerToken: c.Token, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA, ServerName: c.ServerName}}
}

// serveSimulationClient sends the clusters, and then executes orders.
func serveSimulationClient(s *simulated.Server, conn net.Conn) {
	defer conn.Close()
	clusters := make([]SimulatedCluster, s.Clusters())
	for i := range clusters {
		c := s.Cluster(i)
		cfg := c.Config()
		clusters[i] = SimulatedCluster{c.Name(), cfg.Host, cfg.BearerToken, cfg.ServerName, cfg.CAData}
	}
	if json.NewEncoder(conn).Encode(clusters) != nil {
		return
	}
	orders, answers := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var o churnOrder
		if orders.Decode(&o) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(o.Seconds)*time.Second)
		n := s.Churn(ctx, o.Rate)
		cancel()
		if answers.Encode(n) != nil {
			return
		}
	}
}

// SimulationClient controls a [Simulation].
type SimulationClient struct {
	// Clusters are sorted by name.
	Clusters []SimulatedCluster
	conn     net.Conn
	answers  *json.Decoder
}

// DialSimulation connects to a simulation.
func DialSimulation(addr string) (*SimulationClient, error) {
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		return nil, err
	}
	c := &SimulationClient{conn: conn, answers: json.NewDecoder(conn)}
	if err := c.answers.Decode(&c.Clusters); err != nil {
		_ = conn.Close()
		return nil, err
	}
	slices.SortFunc(c.Clusters, func(a, b SimulatedCluster) int { return strings.Compare(a.Name, b.Name) })
	return c, nil
}

// Churn makes pods change at a rate for the given number of seconds, and returns how many
// did.
func (c *SimulationClient) Churn(perSecond, seconds int) (int, error) {
	if err := json.NewEncoder(c.conn).Encode(churnOrder{perSecond, seconds}); err != nil {
		return 0, err
	}
	var n int
	err := c.answers.Decode(&n)
	return n, err
}

// Close ends the connection. The simulation continues.
func (c *SimulationClient) Close() error { return c.conn.Close() }
