// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pages

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// unit is what a word after a number means: a multiple of the base unit of a dimension.
type unit struct {
	dimension string
	factor    float64
}

// units are the units of result files and of pages. Counts and ratios have the dimension "".
var units = map[string]unit{
	"":   {"", 1},
	"ns": {"time", 1e-9}, "us": {"time", 1e-6}, "µs": {"time", 1e-6}, "ms": {"time", 1e-3}, "s": {"time", 1},
	"微秒": {"time", 1e-6}, "毫秒": {"time", 1e-3}, "秒": {"time", 1}, "minutes": {"time", 60}, "分钟": {"time", 60},
	"bytes": {"memory", 1}, "字节": {"memory", 1},
	"KB": {"memory", 1e3}, "MB": {"memory", 1e6}, "GB": {"memory", 1e9},
	"KiB": {"memory", 1 << 10}, "MiB": {"memory", 1 << 20}, "GiB": {"memory", 1 << 30},
	"cores": {"cores", 1}, "核": {"cores", 1},
	"x": {"", 1}, "times": {"", 1}, "倍": {"", 1}, "%": {"", 0.01},
}

// valueName matches the name of a value.
var valueName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*$`)

// eval returns the text of an expression, and the names of the files that it uses.
func (rs Results) eval(expression string) (text string, files []string, err error) {
	words := strings.Fields(expression)
	if len(words) == 0 {
		return "", nil, fmt.Errorf("marker without a value")
	}
	word, silent, decimals := "", false, -1
	for _, w := range words[1:] {
		switch n, isDecimals := strings.CutPrefix(w, "."); {
		case isDecimals:
			if decimals, err = strconv.Atoi(n); err != nil || decimals < 0 {
				return "", nil, fmt.Errorf("marker %q: %s is not a number of decimals", expression, w)
			}
		default:
			name := strings.Trim(w, "()")
			if word != "" || name == "" || units[name].factor == 0 {
				return "", nil, fmt.Errorf("marker %q: %s is not a unit", expression, w)
			}
			word, silent = name, name != w
		}
	}
	x, err := rs.product(words[0])
	if err != nil {
		return "", nil, fmt.Errorf("marker %q: %w", expression, err)
	}
	if word != "" {
		from, to := units[x.Unit], units[word]
		if from.dimension != to.dimension {
			return "", nil, fmt.Errorf("marker %q: the value is in %q, which is never %s", expression, x.Unit, word)
		}
		x.Value *= from.factor / to.factor
	}
	if silent {
		word = ""
	}
	for _, name := range strings.FieldsFunc(words[0], isOperator) {
		file, _, _ := strings.Cut(name, ".")
		files = append(files, file)
	}
	return format(x.Value, decimals) + suffix(word), files, nil
}

func isOperator(r rune) bool { return r == '/' || r == '*' }

// product returns a value, or the quotient or the product of two.
func (rs Results) product(word string) (Value, error) {
	i := strings.IndexFunc(word, isOperator)
	if i < 0 {
		return rs.find(word)
	}
	x, err := rs.find(word[:i])
	if err != nil {
		return x, err
	}
	y, err := rs.find(word[i+1:])
	if err != nil {
		return y, err
	}
	a, b := units[x.Unit], units[y.Unit]
	switch {
	case word[i] == '*' && b.dimension == "":
		return Value{Value: x.Value * y.Value * b.factor, Unit: x.Unit}, nil
	case word[i] == '/' && b.dimension == "":
		return Value{Value: x.Value / (y.Value * b.factor), Unit: x.Unit}, nil
	case word[i] == '/' && a.dimension == b.dimension:
		return Value{Value: x.Value * a.factor / (y.Value * b.factor)}, nil
	}
	return x, fmt.Errorf("%s: the units %q and %q do not fit", word, x.Unit, y.Unit)
}

// suffix returns a unit as it follows a number.
func suffix(word string) string {
	if word == "" || word == "x" {
		return word
	}
	return " " + word
}

// format returns a number with commas, with the given number of decimals, or with three significant digits if
// that is negative.
func format(x float64, decimals int) string {
	text := strconv.FormatFloat(x, 'f', max(decimals, 0), 64)
	if decimals < 0 && x < 1000 && x > -1000 {
		text = strconv.FormatFloat(x, 'g', 3, 64)
		if strings.Contains(text, "e") { // 1e+03, or very small
			rounded, _ := strconv.ParseFloat(text, 64)
			text = strconv.FormatFloat(rounded, 'f', -1, 64)
		}
	}
	whole, fraction, _ := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}

// unitWords returns the units as a pattern, the longest first.
func unitWords() string {
	var words []string
	for w := range units {
		if w != "" {
			words = append(words, regexp.QuoteMeta(w))
		}
	}
	slices.SortFunc(words, func(a, b string) int {
		if d := len(b) - len(a); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return strings.Join(words, "|")
}
