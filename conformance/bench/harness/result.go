// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/watershed-project/watershed/internal/layout/pages"
)

// resultDigits is the number of significant digits of a value in a result file.
const resultDigits = 6

// The packages that benchmarks measure, for [Report.Measures].
var (
	// Informer is the library with one cluster.
	Informer = []string{".", "./kube"}
	// Compat is the library behind client-go's interface.
	Compat = []string{"./compat"}
	// Fleet is the library with many clusters.
	Fleet = []string{"./fleet"}
	// Program is watershed serve.
	Program = []string{"./cmd/watershed"}
)

// As names the values of a column, so that pages can insert them: with the key of the row and a dot before the
// key of the column. The unit belongs to the numbers that the column returns; the text of a
// cell may have another unit.
func (c Column[R]) As(key, unit string) Column[R] {
	c.key, c.unit = key, unit
	return c
}

// Key returns a name in the form that the names of values have: lower-case words with dashes between them.
func Key(name string) string {
	return strings.Trim(notKey.ReplaceAllString(strings.ToLower(name), "-"), "-")
}

var notKey = regexp.MustCompile(`[^a-z0-9]+`)

// Value names a value of the report, so that pages can insert it. NaN is not recorded.
func (r *Report) Value(name string, x float64, unit string) {
	if math.IsNaN(x) {
		return
	}
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', resultDigits, 64), 64) // what was just formatted
	r.values = append(r.values, pages.Value{Name: name, Value: x, Unit: unit})
}

// record writes the named values to a result file below the folder of the page. If that is the folder of a checkout,
// record inserts the results into all pages of the checkout.
func (r *Report) record(out io.Writer, folder string) error {
	checkout := "."
	inCheckout := os.Getenv(reportVariable) == ""
	if inCheckout {
		checkout = strings.TrimSuffix(folder, filepath.FromSlash(reportFolder))
	}
	commit, err := pages.Commit(checkout)
	if err != nil {
		return err
	}
	result := pages.Result{
		Date:   time.Now().UTC().Format(time.DateOnly),
		Commit: commit,
		Machine: pages.Machine{
			Cores: runtime.NumCPU(),
			CPU:   procValue("/proc/cpuinfo", "model name"),
			Go:    strings.TrimPrefix(runtime.Version(), "go"),
		},
		Packages: r.Measures,
		Values:   r.values,
	}
	results := filepath.Join(folder, filepath.Base(pages.Folder))
	if err := result.Write(results, r.Name); err != nil {
		return err
	}
	fmt.Fprintf(out, "written to %s\n", filepath.Join(results, r.Name+".json"))
	if !inCheckout {
		return nil
	}
	written, err := pages.Update(checkout)
	for _, page := range written {
		fmt.Fprintf(out, "written to %s\n", filepath.Join(checkout, page))
	}
	return err
}
