// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/cmd/watershed/internal/verification"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestVerify_rights checks that only the owner may verify, and callers that the cluster
// allows to create verifications.
func TestVerify_rights(t *testing.T) {
	c := kubetest.Start(t, &kubetest.Options{
		Name:  "a",
		Users: []kubetest.User{{Name: "ann"}, {Name: "bob"}, {Name: "eve", Groups: []string{"system:masters"}}},
	})
	s := &state.Dir{Path: t.TempDir()}
	startServe(t, s, "--kubeconfig", c.Kubeconfig(), "--context", c.Name(), "--resources", "configmaps,namespaces",
		"--home", c.Name())
	target, err := apiclient.LocalTarget(*s, "")
	expect.NoError(t, err)
	as := func(token string) error {
		client, err := rest.HTTPClientFor(&rest.Config{
			BearerToken:     token,
			TLSClientConfig: rest.TLSClientConfig{CAData: target.Authority},
		})
		expect.NoError(t, err)
		defer client.CloseIdleConnections()
		body, err := json.Marshal(verification.New(verification.Spec{Resources: []string{"configmaps"}}))
		expect.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.URL+"/fleet"+verification.Path,
			bytes.NewReader(body))
		expect.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		text, _, err := apiclient.Exchange(client, target.URL, req, http.StatusCreated, 1<<20)
		if err != nil {
			return err
		}
		var v verification.Verification
		expect.NoError(t, json.Unmarshal(text, &v))
		results := v.Status.Results
		if len(results) == 1 && results[0].Error != "" {
			return errors.New(results[0].Error) // the copy has not synced yet
		}
		if len(results) != 1 || results[0].Objects == 0 || results[0].Diverged() != 0 {
			t.Errorf("the results are %+v", results)
		}
		return nil
	}
	expect.Soon(t, "the copy has synced", func() bool { return as(target.Owner) == nil })
	for user, want := range map[string]string{"ann": "forbidden", "eve": ""} {
		if err := as(c.UserConfig(user).BearerToken); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", user, err, want)
		}
	}
	if err := as("wrong"); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("with a wrong token: %v", err)
	}
	// A right to read everything is not enough.
	expect.NoError(t, c.Grant(t.Context(), "bob", "", rbacv1.PolicyRule{
		Verbs:     []string{"get", "list", "watch"},
		APIGroups: []string{"*"},
		Resources: []string{"*"},
	}))
	if err := as(c.UserConfig("bob").BearerToken); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("with a right to read: %v", err)
	}
	expect.NoError(t, c.Grant(t.Context(), "ann", "", rbacv1.PolicyRule{
		Verbs:     []string{"create"},
		APIGroups: []string{"watershed.dev"},
		Resources: []string{"verifications"},
	}))
	expect.Soon(t, "the right is in effect", func() bool { return as(c.UserConfig("ann").BearerToken) == nil })
}
