// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package listwatch

import (
	"errors"
	"fmt"
	"io"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// maxSkipped is how many objects of a page may be unreadable before the list fails.
const maxSkipped = 10_000

// ReadList reads one page of a list and calls each for every object, as it arrives. If
// each fails, ReadList stops and returns its error. The objects get the kind; if it is
// nil they have the kind in the list or in their own bytes.
func ReadList(
	req Request, resp Response, e wire.Encoding, kind *wire.Kind, each func(*wire.Object) error,
) (reflector.Page, error) {
	var page reflector.Page
	reader := stream.NewListReader(resp, e, kind)
	for {
		obj, err := reader.Next()
		if ended := resp.Ended(); ended != nil {
			return page, ended
		}
		var unfiled *wire.ObjectError
		switch {
		case err == nil:
			err = each(obj)
		case err == io.EOF: //nolint:errorlint // a wrapped EOF is a body that broke off
			drain(resp)
			meta := reader.Meta()
			if len(meta.Continue)+len(meta.ResourceVersion) > maxToken {
				return page, resp.Failed(errors.New("the continue token or the version of the list is too long"))
			}
			page.Version, page.Continue = meta.ResourceVersion, meta.Continue
			return page, nil
		case errors.As(err, &unfiled):
			err = Skip(&page, req.Undecodable(unfiled.Key, stream.Nameless(unfiled), err))
		default:
			err = resp.Failed(err)
		}
		if err != nil {
			return page, err
		}
	}
}

// Skip adds an object that cannot be read to those that are missing from a page. It
// returns an error if too many are.
func Skip(page *reflector.Page, err error) error {
	page.Skipped = append(page.Skipped, err)
	if len(page.Skipped) > maxSkipped {
		return fmt.Errorf("too many objects: %w", err)
	}
	return nil
}
