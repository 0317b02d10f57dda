// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command count prints the figures of package figures for one checkout, or for
// two side by side:
//
//	go run ./internal/layout/count [-places] [title=]folder [[title=]folder]
//
// With -places it also lists where the figures of the last checkout come from.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/watershed-project/watershed/internal/layout/figures"
)

func main() {
	places := flag.Bool("places", false, "list the places that the last checkout's figures come from")
	flag.Parse()
	if err := run(os.Stdout, flag.Args(), *places); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, folders []string, places bool) error {
	if len(folders) == 0 {
		return errors.New("no checkout: give the folder of one, or of two")
	}
	var columns []figures.Column
	for _, arg := range folders {
		title, folder, ok := strings.Cut(arg, "=")
		if !ok {
			title, folder = filepath.Base(arg), arg
		}
		checkout, err := figures.Read(folder)
		if err != nil {
			return err
		}
		counts, err := figures.Count(checkout)
		if err != nil {
			return err
		}
		columns = append(columns, figures.Column{Title: title, Counts: counts})
	}
	if err := figures.WriteTable(w, columns); err != nil {
		return err
	}
	if places {
		figures.WritePlaces(w, columns[len(columns)-1].Counts)
	}
	return nil
}
