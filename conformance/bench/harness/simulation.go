// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// SimulationRole is the name under which [ServeSimulation] must be among the roles of the
// command.
const SimulationRole = "simulation"

// Simulation is a process with simulated clusters. Another process controls them with
// a [SimulationClient].
type Simulation struct {
	*Child
	// Addr is the address at which it accepts clients.
	Addr string
}

// StartSimulation starts the process and returns when it serves. The caller closes it.
func StartSimulation(ctx context.Context, opts simulated.Options) (*Simulation, error) {
	c, err := StartChild(ctx, SimulationRole, opts)
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
	server := rpc.NewServer()
	if err := server.RegisterName(SimulationRole, &SimulationService{s}); err != nil {
		return err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(l.Addr().String()); err != nil {
		return err
	}
	go server.Accept(l)
	_, err = io.Copy(io.Discard, in) // until the benchmark closes it
	return err
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
	tls := rest.TLSClientConfig{CAData: c.CA, ServerName: c.ServerName}
	return &rest.Config{Host: c.Host, BearerToken: c.Token, TLSClientConfig: tls}
}

// SimulationService has what clients of a simulation call.
type SimulationService struct{ s *simulated.Server }

// Clusters returns the clusters, sorted by name.
func (s *SimulationService) Clusters(_ struct{}, all *[]SimulatedCluster) error {
	for i := range s.s.Clusters() {
		c := s.s.Cluster(i)
		cfg := c.Config()
		*all = append(*all, SimulatedCluster{c.Name(), cfg.Host, cfg.BearerToken, cfg.ServerName, cfg.CAData})
	}
	slices.SortFunc(*all, func(a, b SimulatedCluster) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// Stats returns what all clusters together have counted.
func (s *SimulationService) Stats(_ struct{}, sum *simulated.Stats) error {
	*sum = s.s.Stats()
	return nil
}

// ChurnOrder makes pods change.
type ChurnOrder struct {
	// Rate is changes per second over all clusters.
	Rate    int
	Seconds int
}

// Churn makes pods change, and returns how many did.
func (s *SimulationService) Churn(o ChurnOrder, n *int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(o.Seconds)*time.Second)
	defer cancel()
	*n = s.s.Churn(ctx, o.Rate)
	return nil
}

// SimulationClient controls a [Simulation].
type SimulationClient struct {
	// Clusters are sorted by name.
	Clusters []SimulatedCluster
	*rpc.Client
}

// DialSimulation connects to a simulation. The caller closes the client.
func DialSimulation(addr string) (*SimulationClient, error) {
	conn, err := rpc.Dial("tcp4", addr)
	if err != nil {
		return nil, err
	}
	c := &SimulationClient{Client: conn}
	if err := c.Call(SimulationRole+".Clusters", struct{}{}, &c.Clusters); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// Churn makes pods change at a rate for the given number of seconds, and returns how many
// did.
func (c *SimulationClient) Churn(perSecond, seconds int) (n int, err error) {
	err = c.Call(SimulationRole+".Churn", ChurnOrder{Rate: perSecond, Seconds: seconds}, &n)
	return n, err
}

// Stats returns what all clusters together have counted.
func (c *SimulationClient) Stats() (sum simulated.Stats, err error) {
	err = c.Call(SimulationRole+".Stats", struct{}{}, &sum)
	return sum, err
}
