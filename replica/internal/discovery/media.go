// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package discovery

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"

	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

const aggregatedKind = "APIGroupDiscoveryList"

// media is the media type of a response.
type media struct {
	encoding   encode.Encoding
	aggregated bool
	pretty     bool
}

// contentType returns the media type of the response, by which a client recognizes an
// aggregated document.
func (m media) contentType() string {
	if m.aggregated {
		return m.encoding.MediaType() + ";g=" + apidiscoveryv2.GroupName + ";v=" +
			apidiscoveryv2.SchemeGroupVersion.Version + ";as=" + aggregatedKind
	}
	return m.encoding.MediaType()
}

// negotiate returns the best media type for a document, aggregated or not, that the client
// accepts.
func negotiate(header string, aggregated bool) (media, bool) {
	if header == "" {
		return media{}, !aggregated
	}
	for clause := range respond.Clauses(header) {
		if stream := clause.Params["stream"]; stream != "" && stream != "watch" || clause.Params["sv"] != "" {
			continue
		}
		as := clause.Params["as"]
		group := clause.Params["g"]
		version := clause.Params["v"]
		asks := as == "" && group == "" && version == ""
		if aggregated {
			asks = as == aggregatedKind && group == apidiscoveryv2.GroupName &&
				version == apidiscoveryv2.SchemeGroupVersion.Version
		}
		if asks {
			return media{
				encoding: clause.Encoding, aggregated: aggregated, pretty: clause.Params["pretty"] == "1",
			}, true
		}
	}
	return media{}, false
}
