// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// testBenchmark is the name of the benchmark in tests.
const testBenchmark = "test"

// testTrial measures two subjects. The first returns a different number in each run.
var testTrial = Trial[testResult]{
	Name: testBenchmark,
	Subjects: []Subject[testResult]{
		{Name: "varying", Runs: 3, Measure: func(context.Context) (testResult, error) {
			return testResult{Number: time.Now().UnixNano(), Env: os.Getenv("TEST_ENV")}, nil
		}},
		{Name: "once", Runs: 1, Env: []string{"TEST_ENV=own"}, Measure: func(context.Context) (testResult, error) {
			return testResult{Number: 1, Env: os.Getenv("TEST_ENV")}, nil
		}},
		{
			Name:    "failing",
			Runs:    0,
			Measure: func(context.Context) (testResult, error) { return testResult{}, errors.New("broken") },
		},
	},
	Order: func(r testResult) float64 { return float64(r.Number) },
}

type testResult struct {
	Number int64
	Env    string
}

// testRoles are the roles that tests start.
var testRoles = map[string]Role{
	BareRole:       ServeBare,
	WatchersRole:   ServeWatchers,
	SimulationRole: ServeSimulation,
	"echo":         echo,
	testBenchmark:  testTrial.Role,
}

// echo answers with its task, and then with every line.
func echo(task []byte, in io.Reader, out io.Writer) error {
	answers := json.NewEncoder(out)
	if err := answers.Encode(json.RawMessage(task)); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := answers.Encode(lines.Text()); err != nil {
			return err
		}
	}
	return nil
}

// TestMain makes the test binary the command that the harness starts again.
func TestMain(m *testing.M) {
	done, err := RunAsChild(testRoles, os.Stdout)
	if !done {
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newServer starts an HTTP/2 server with TLS. Its process is that of the test.
func newServer(t *testing.T, h http.HandlerFunc) *Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	server := Address{Name: "test server", Host: s.URL, Token: "secret", CA: ca}.Server()
	server.PID = os.Getpid()
	return server
}

// newClient returns a client of the server that the test closes.
func newClient(t *testing.T, s *Server) *http.Client {
	t.Helper()
	client, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}
