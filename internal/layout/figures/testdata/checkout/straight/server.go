// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package straight has files that refer to each other in one direction.
package straight

type Server struct{ cache Cache[string] }

func (s *Server) Serve() string { return s.cache.Get() + limit }
