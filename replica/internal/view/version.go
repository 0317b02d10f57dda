// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/watershed-project/watershed/replica/internal/status"
)

// ParseVersion returns a resourceVersion as a number, 0 for "". For any other text it
// returns the 500 that kube-apiserver returns.
func ParseVersion(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, status.New(http.StatusInternalServerError, "",
			field.Invalid(field.NewPath("resourceVersion"), text, err.Error()).Error())
	}
	return v, nil
}

// listVersion is [ParseVersion] for a list, for which kube-apiserver returns a 400.
func listVersion(text string) (uint64, error) {
	v, err := ParseVersion(text)
	if err != nil {
		err = apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	return v, err
}
