// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// corpusFile has the recorded requests, one per line: method, URI, Accept,
// Accept-Encoding and the clients that sent it, separated by tabs.
var corpusFile = filepath.Join("testdata", "corpus.tsv")

// readCorpus reads the recorded requests.
func readCorpus() ([]request, error) {
	text, err := os.ReadFile(corpusFile)
	if err != nil {
		return nil, err
	}
	var out []request
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		cells := strings.Split(line, "\t")
		if len(cells) != 5 {
			return nil, fmt.Errorf("%s: line %d has %d cells", corpusFile, i+1, len(cells))
		}
		r := request{
			Method: cells[0], URI: cells[1], Accept: cells[2], Encoding: cells[3], From: strings.Split(cells[4], ", "),
		}
		client, _, _ := strings.Cut(r.From[0], " ")
		r.Category = "recorded from " + client
		out = append(out, r)
	}
	return out, nil
}

// writeCorpus writes the requests, sorted and without duplicates.
func writeCorpus(requests []request) error {
	byLine := map[string]request{}
	for _, r := range requests {
		key := strings.Join([]string{r.Method, r.URI, r.Accept, r.Encoding}, "\t")
		old := byLine[key]
		r.From = append(r.From, old.From...)
		byLine[key] = r
	}
	var lines []string
	for key, r := range byLine {
		slices.Sort(r.From)
		lines = append(lines, key+"\t"+strings.Join(slices.Compact(r.From), ", ")+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int {
		x, y := strings.Split(a, "\t"), strings.Split(b, "\t")
		return cmp.Or(strings.Compare(x[1], y[1]), strings.Compare(a, b))
	})
	return os.WriteFile(corpusFile, []byte(strings.Join(lines, "")), 0o644)
}

// placeholder matches a part of a URI that is not known before the cluster runs:
//
//	${rv}                          the version of the subject's own list of the collection
//	${rv:configmaps/shop/settings} an object's version
//	${uid:pods/shop/db-0}          an object's uid
//	${hash:apis/apps/v1}           the hash of a version's OpenAPI document, from the subject
var placeholder = regexp.MustCompile(`\$\{(\w+)(?::([^}]*))?\}`)

// expand replaces the placeholders of a request for one subject.
func (w *comparedCluster) expand(ctx context.Context, s *subject, r request) (request, error) {
	var failed error
	r.URI = placeholder.ReplaceAllStringFunc(r.URI, func(match string) string {
		m := placeholder.FindStringSubmatch(match)
		var v string
		var err error
		switch {
		case m[1] == "rv" && m[2] == "":
			v, err = s.version(ctx, collection(r.path()))
		case m[1] == "hash":
			v, err = s.hash(ctx, m[2])
		default:
			if v = w.uids[m[1]+":"+m[2]]; v == "" {
				err = fmt.Errorf("nothing is known of %s", match)
			}
		}
		if err != nil {
			failed = fmt.Errorf("%s of %s: %w", match, s.name, err)
		}
		return v
	})
	return r, failed
}

// collection returns the path of the list that belongs to a watch, or to a request for
// one object.
func collection(path string) string {
	path = strings.Replace(path, "/watch/", "/", 1)
	parts := strings.Split(strings.Trim(path, "/"), "/")
	prefix := 2
	if parts[0] == "apis" {
		prefix = 3
	}
	rest := parts[min(prefix, len(parts)):]
	switch {
	case len(rest) > 2 && rest[0] == "namespaces":
		rest = rest[:3]
	case len(rest) > 1:
		rest = rest[:1]
	}
	return "/" + strings.Join(append(parts[:min(prefix, len(parts)):min(prefix, len(parts))], rest...), "/")
}

// version returns the version of the subject's list of a collection.
func (s *subject) version(ctx context.Context, path string) (string, error) {
	a := s.send(ctx, request{Method: http.MethodGet, URI: path + "?limit=1", Accept: "application/json"})
	if a.err != nil {
		return "", a.err
	}
	v, err := value(a)
	if err != nil {
		return "", err
	}
	if rv := text(v, "metadata", "resourceVersion"); rv != "" {
		return rv, nil
	}
	return "", fmt.Errorf("list of %s: %d without a version", path, a.code)
}

// hash returns the hash of an OpenAPI document, from the subject's index.
func (s *subject) hash(ctx context.Context, path string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hashes == nil {
		a := s.send(ctx, request{Method: http.MethodGet, URI: "/openapi/v3", Accept: "application/json"})
		if a.err != nil {
			return "", a.err
		}
		var index struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		if err := json.Unmarshal(a.body, &index); err != nil {
			return "", fmt.Errorf("/openapi/v3: %d %w", a.code, err)
		}
		s.hashes = map[string]string{}
		for name, doc := range index.Paths {
			if u, err := url.Parse(doc.ServerRelativeURL); err == nil {
				s.hashes[name] = u.Query().Get("hash")
			}
		}
	}
	if s.hashes[path] == "" {
		return "", fmt.Errorf("/openapi/v3 does not tell of %s", path)
	}
	return s.hashes[path], nil
}

// identities returns uids and versions of all objects: "uid:pods/shop/db-0", and for each
// mirrored resource the name of one object, "one:/api/v1/pods" by its path.
func (w *comparedCluster) identities(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, r := range w.catalogue.mirrored() {
		a := w.server.send(ctx, request{Method: http.MethodGet, URI: r.path(), Accept: metadataAccept})
		v, err := value(a)
		if a.err != nil || err != nil {
			return nil, fmt.Errorf("identities of %s: %w %w", r.path(), a.err, err)
		}
		items, _ := at(v, "items").([]any)
		for _, item := range items {
			m := at(item, "metadata")
			name := text(m, "name")
			key := r.resource + "/" + strings.TrimPrefix(text(m, "namespace")+"/"+name, "/")
			out["uid:"+key] = text(m, "uid")
			out["rv:"+key] = text(m, "resourceVersion")
			if out["one:"+r.path()] == "" {
				out["one:"+r.path()] = r.in(text(m, "namespace")) + "/" + url.PathEscape(name)
			}
		}
	}
	return out, nil
}
