// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/verification"
)

// maxResponse limits, in bytes, how much of a response is read.
const maxResponse = 64 << 20

// verifyClient sends verifications to a server.
type verifyClient struct{ *apiclient.Connection }

// create sends a verification and returns its results. With dryRun, the server compares
// nothing, and the results name what it would compare.
func (c verifyClient) create(ctx context.Context, spec verification.Spec, dryRun bool) ([]verification.Result, error) {
	body, err := json.Marshal(verification.New(spec))
	if err != nil {
		return nil, err
	}
	url := c.URL + "/fleet" + verification.Path
	if dryRun {
		url += "?dryRun=" + metav1.DryRunAll
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	text, _, err := c.Exchange(req, http.StatusCreated, maxResponse)
	if err != nil {
		return nil, err
	}
	var v verification.Verification
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("server at %s: %w", c.URL, err)
	}
	return v.Status.Results, nil
}
