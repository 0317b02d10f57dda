// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
)

// scrapeLines are the lines of the test's output that are results.
var scrapeLines = regexp.MustCompile(`(?m)^scrape .*\n`)

// benchScrape measures a scrape of the metrics of 1,000 clusters. The packages that it
// measures can only be imported in the module of the program, so it runs their test.
func benchScrape(out io.Writer) error {
	cmd := exec.Command("go", "test", "github.com/watershed-project/watershed/cmd/watershed/internal/exposition", "-run", "^TestScrape$", "-count=1", "-v", "-timeout", "60m")
	cmd.Env = append(os.Environ(), "WATERSHED_BENCH=scrape")
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("TestScrape: %w: %s", err, text)
	}
	_, err = out.Write(bytes.Join(scrapeLines.FindAll(text, -1), nil))
	return err
}
