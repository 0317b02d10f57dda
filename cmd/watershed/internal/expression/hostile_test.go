// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/wiretest"
)

// big returns an object with a text of a megabyte and a list of 10,000 texts.
func big() map[string]any {
	list := make([]any, 10_000)
	for i := range list {
		list[i] = fmt.Sprintf("value-%d", i)
	}
	return map[string]any{"text": strings.Repeat("a", 1<<20), "list": list, "old": "a", "empty": ""}
}

// doubling returns an expression whose value is a list that contains a list twice, and so on, levels
// deep.
func doubling(levels int, step string) string {
	return "[dyn([1, 2])]" + strings.Repeat(".map(x, dyn("+step+"))", levels) + "[0]"
}

// Each hostile expression is refused, or ends within the limits of time and memory.
func TestHostile_bounded(t *testing.T) {
	repeat := strings.Repeat
	lists, maps := doubling(15, "[x, x, x, x]"), doubling(15, "{'a': x, 'b': x, 'c': x, 'd': x}")
	for name, text := range map[string]string{
		"loops in loops":         nested(8, "object.list"),
		"loops in loops, few":    nested(3, "object.list"),
		"loops that filter":      "object.list.filter(a, object.list.filter(b, false).size() == 0).size() > 0",
		"loops that filter all":  "object.list.all(a, object.list.filter(b, true).size() > 0)",
		"loops of one":           "object.list.all(a, object.list.exists_one(b, false) == false)",
		"loops of transform":     "object.list.all(a, object.list.transformList(i, v, v).size() > 0)",
		"loops of entries":       "object.list.all(a, object.list.transformMapEntry(i, v, {v: i}).size() > 0)",
		"time zones":             "object.list.all(a, now.getHours('Europe/Berlin') >= 0)",
		"loops over literals":    nested(9, "[1,2,3,4,5,6,7,8,9,10]"),
		"replace with text":      `object.text.replace("", object.text) == ""`,
		"replace of replace":     `object.text` + repeat(`.replace("a", "aaaaaaaaaaaaaaaa")`, 4) + ` == ""`,
		"join":                   `object.list.map(x, object.text).join(object.text) == ""`,
		"format":                 `"` + repeat("%s", 400) + `".format([object.text` + repeat(",object.text", 399) + `]) == ""`,
		"format precision":       `"%.2000000000f".format([1.5]) == ""`,
		"range":                  `lists.range(4000000000).size() == 1`,
		"range small, loops":     `lists.range(400).all(a, lists.range(400).all(b, lists.range(400).all(c, a >= 0)))`,
		"doubled list":           doubling(24, "x + x") + " == [3]",
		"doubled list in":        "3 in " + doubling(24, "x + x"),
		"nested list equal":      lists + " == " + lists,
		"nested list in":         "[3] in " + lists,
		"nested list contains":   "sets.contains(" + lists + ", " + lists + ")",
		"nested list flatten":    lists + ".flatten(20).size() == 1",
		"nested map equal":       maps + " == " + maps,
		"nested list format":     `"%s".format([` + lists + `]) == ""`,
		"distinct":               "object.list.distinct().size() == 1",
		"sets":                   "sets.equivalent(object.list, object.list)",
		"sum of lists":           "(" + repeat("object.list + ", 60) + "object.list).size() == 1",
		"sum of lists of lists":  "object.list.all(a, (" + repeat("object.list + ", 60) + "object.list).size() == 1)",
		"sum of texts":           "(" + repeat("object.text + ", 60) + "object.text).size() == 1",
		"split":                  `object.text.split("").all(a, object.text.split("").all(b, a == b))`,
		"size of text":           "object.list.all(a, object.text.size() > 1)",
		"charAt":                 "object.list.all(a, object.text.charAt(1000000) == 'a')",
		"compare texts":          "object.list.all(a, object.text < object.text + 'a')",
		"contains":               "object.list.all(a, object.text.contains(object.text.substring(1) + 'b'))",
		"indexOf":                "object.text.indexOf(object.text.substring(500000) + 'b') == 1",
		"regex":                  `object.text.matches("(((a{30}){30})b)")`,
		"regex in loop":          `object.list.all(a, object.text.matches("a*a*a*a*b") == false)`,
		"regex of object":        `object.text.matches(object.text)`,
		"regex large":            `object.old.matches("((((a{10}){10}){10}){10})")`,
		"regex classes":          `object.text.find("` + repeat("[a-z]*", 150) + `b") == ""`,
		"regex of loop":          `object.list.all(a, object.old.matches(a + "x{900}"))`,
		"findAll":                `object.text.findAll("a").size() == 1`,
		"nesting":                repeat("(", 8000) + "1" + repeat(")", 8000) + " == 1",
		"nesting of lists":       repeat("[", 8000) + repeat("]", 8000) + " == []",
		"nesting of not":         repeat("!", 16000) + "true",
		"nesting of minus":       repeat("-", 16000) + "1 == 1",
		"nesting of ternary":     repeat("true?", 3000) + "true" + repeat(":true", 3000),
		"nesting of fields":      "object" + repeat(".a", 8000) + " == 1",
		"nesting of indexes":     "object" + repeat("[0]", 5000) + " == 1",
		"long sum":               repeat("1+", 8000) + "1 == 1",
		"long and":               repeat("true&&", 2700) + "true",
		"long and of fields":     repeat("object.a&&", 1600) + "true",
		"long or of equals":      repeat("object.old=='b'||", 900) + "true",
		"longest or of equals":   repeat("object.old=='b'||", 390) + "true",
		"long list":              "[" + repeat("1,", 8000) + "1].size() == 1",
		"long literal":           `"` + repeat("a", 16000) + `" == ""`,
		"long bytes":             `b"` + repeat("a", 16000) + `" == b""`,
		"too long":               `"` + repeat("a", 17000) + `" == ""`,
		"far too long":           repeat("a", 50<<20),
		"optMap":                 "optional.of(1)" + repeat(".optMap(x, x)", 1000) + ".hasValue()",
		"optFlatMap":             "optional.of(1)" + repeat(".optFlatMap(x, optional.of(x))", 500) + ".hasValue()",
		"macros":                 "object" + repeat(".map(a,a)", 1500) + ".size() == 1",
		"brackets that are open": repeat("[{(", 5000),
		"quotes":                 repeat(`"`, 16000),
		"errors":                 repeat("a.", 8000),
		"unknown names":          repeat("a||", 5000) + "b",
		"numbers":                repeat("9", 16000) + " == 1",
		"number of text":         `int(object.text) == 1 || double(object.text) == 1.0`,
		"quantity":               `quantity("1e2147483647").compareTo(quantity("1e-2147483648")) == 0`,
		"quantity digits":        `quantity("` + repeat("9", 4000) + `").add(quantity("1n")).sign() == 0`,
		"types":                  repeat("type(", 60) + "1" + repeat(")", 60) + " == type",
	} {
		t.Run(name, func(t *testing.T) { bounded(t, text) })
	}
}

// nested returns an expression of loops in loops.
func nested(loops int, list string) string {
	var b strings.Builder
	for i := range loops {
		fmt.Fprintf(&b, "%s.all(x%d, ", list, i)
	}
	return b.String() + "x0 != ''" + strings.Repeat(")", loops)
}

const (
	// longest and most are what one hostile expression may take, with room for a slow machine.
	longest = 30 * time.Second
	most    = 512 << 20
)

func bounded(t *testing.T, text string) {
	object := big()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	e, err := Compile(text, Options{Condition: true})
	compiled := time.Since(begin)
	result := "refused: "
	var evaluated time.Duration
	if err == nil {
		begin = time.Now()
		r, err := e.Evaluate(context.Background(), NewDecodedRow(object, NewSurroundings(Cluster{}, time.Now())))
		if err != nil {
			t.Fatal(err)
		}
		evaluated = time.Since(begin)
		result = fmt.Sprintf("%v %v, cost %d", r.Value, r.Err, r.Cost)
		if r.Cost > MaxCost {
			t.Errorf("the cost is %d, the limit is %d", r.Cost, MaxCost)
		}
	} else {
		result += err.Error()
		if len(result) > 1000 {
			t.Errorf("the error has %d bytes", len(result))
		}
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("compiled %v, evaluated %v, allocated %d KiB: %.150s", compiled, evaluated, allocated>>10, result)
	if compiled+evaluated > longest {
		t.Errorf("it took %v", compiled+evaluated)
	}
	// With the race detector, a sync.Pool forgets what it has, and each match allocates a machine.
	if allocated > most && !wiretest.Race {
		t.Errorf("it allocated %d MiB", allocated>>20)
	}
}
