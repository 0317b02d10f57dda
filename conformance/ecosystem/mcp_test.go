// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package ecosystem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// toolCall is a call of a tool of kubernetes-mcp-server. Its result contains want.
type toolCall struct {
	tool, arguments, want string
}

var toolCalls = []toolCall{
	{"namespaces_list", `{}`, "shop"},
	{"pods_list", `{}`, "db-0"},
	{"pods_list_in_namespace", `{"namespace":"shop"}`, "db-0"},
	{"pods_get", `{"namespace":"shop","name":"db-0"}`, "name: db-0"},
	{"events_list", `{"namespace":"shop"}`, "SuccessfulCreate"},
	{"resources_list", `{"apiVersion":"apps/v1","kind":"Deployment"}`, "web"},
	{"resources_list", `{"apiVersion":"v1","kind":"Node"}`, "node-0"},
	{"resources_list", `{"apiVersion":"v1","kind":"Secret","namespace":"shop"}`, "Opaque"},
	{"resources_list", `{"apiVersion":"example.com/v1","kind":"Widget"}`, "three"},
	{"resources_get", `{"apiVersion":"example.com/v1","kind":"Widget","namespace":"shop","name":"one"}`, "shiny"},
	{"resources_list", `{"apiVersion":"v1","kind":"Pod","labelSelector":"app=web","namespace":"shop"}`, "web-"},
	{"pods_log", `{"namespace":"shop","name":"db-0","tail":5}`, "line "},
	{"pods_exec", `{"namespace":"shop","name":"db-0","command":["echo","hello"]}`, "hello"},
	{
		"resources_create_or_update",
		`{"resource":"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"written\",\"namespace\":\"shop\"},\"data\":{\"by\":\"mcp\"}}"}`, "by: mcp",
	},
	{"resources_get", `{"apiVersion":"v1","kind":"ConfigMap","namespace":"shop","name":"written"}`, "by: mcp"},
	{
		"resources_scale", `{"apiVersion":"apps/v1","kind":"Deployment","namespace":"stage","name":"web","scale":2}`,
		"replicas: 2",
	},
	{"nodes_top", `{}`, "metrics"},
	{"helm_list", `{"all_namespaces":true}`, ""},
}

// mcpServer compares the list of tools and the results of calls.
func mcpServer(t *testing.T, w *comparedCluster) {
	w.compare(t, "tools", "pods_list", func(ctx context.Context, s *side) (string, error) {
		return w.askMCP(ctx, s, "tools/list", json.RawMessage(`{}`))
	})
	for _, c := range toolCalls {
		w.compare(t, c.tool, c.want, func(ctx context.Context, s *side) (string, error) {
			return w.askMCP(ctx, s, "tools/call", map[string]any{
				"name": c.tool, "arguments": json.RawMessage(c.arguments),
			})
		})
	}
}

// askMCP starts the server, sends one request over its standard input and returns the result.
func (w *comparedCluster) askMCP(ctx context.Context, s *side, method string, params any) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program("kubernetes-mcp-server"), "--kubeconfig", s.kubeconfig, "--toolsets",
		"core,config,helm")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	requests, answers := json.NewEncoder(in), json.NewDecoder(out)
	call := func(id int, method string, params any) (json.RawMessage, error) {
		if err := requests.Encode(map[string]any{
			"jsonrpc": "2.0", "id": id, "method": method, "params": params,
		}); err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		for {
			var answer struct {
				ID     int             `json:"id"`
				Result json.RawMessage `json:"result"`
				Error  json.RawMessage `json:"error"`
			}
			if err := answers.Decode(&answer); err != nil {
				return nil, fmt.Errorf("%s: %w", method, err)
			}
			if answer.ID == id {
				return append(answer.Result, answer.Error...), nil
			}
		}
	}
	begin := map[string]any{
		"protocolVersion": "2025-06-18",
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]any{"name": "test", "version": "1"},
	}
	if _, err := call(1, "initialize", begin); err != nil {
		return "", errors.Join(err, errors.New(tail(complaints.String())))
	}
	if err := requests.Encode(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}); err != nil {
		return "", err
	}
	result, err := call(2, method, params)
	if err != nil {
		return "", err
	}
	return masked(strings.ReplaceAll(indented(string(result)), `\n`, "\n")), nil
}

// indented returns a JSON document with a line for each value.
func indented(document string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(document), "", " "); err != nil {
		return document
	}
	return b.String()
}
