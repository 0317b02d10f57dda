// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package snippets

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Command is a line of a page that a reader types.
type Command struct {
	// Line is its number on the page, from 1.
	Line int
	// Snippet is the number of its snippet on the page, from 1.
	Snippet int
	Text    string
	// Want is what the page shows below it, empty if that is nothing.
	Want []string
	// Stays reports whether the command runs until the end of the page.
	Stays bool
	// Status is the exit status.
	Status int
}

// writes matches the first line of a file that the reader writes.
var writes = regexp.MustCompile(`^// ([a-z]+(?:/[a-z]+)*\.go)$`)

const (
	fence       = "```"
	prompt      = "$ "
	keepRunning = "# keep it running"
)

var exits = regexp.MustCompile(`# exits with (\d+)$`)

// Parse returns the commands of the console snippets of a page and those that write its files, and the number
// of both. It returns an error if a snippet begins with output.
func Parse(page string) (commands []Command, snippets int, err error) {
	inside, console := false, false
	first := 0 // the number of commands before the snippet
	all := strings.Split(page, "\n")
	for i, line := range all {
		number := i + 1
		switch {
		case strings.HasPrefix(line, fence):
			inside = !inside
			console = inside && strings.TrimPrefix(line, fence) == "console"
			if console {
				snippets++
				first = len(commands)
			}
			if text := fileCommand(all[i:]); inside && text != "" {
				snippets++
				commands = append(commands, Command{Line: number, Snippet: snippets, Text: text})
			}
		case !console:
		case strings.HasPrefix(line, prompt):
			c := Command{Line: number, Snippet: snippets, Text: strings.TrimPrefix(line, prompt)}
			c.Stays = strings.HasSuffix(c.Text, keepRunning)
			if m := exits.FindStringSubmatch(c.Text); m != nil {
				c.Status, _ = strconv.Atoi(m[1]) // the expression accepts digits only
			}
			commands = append(commands, c)
		case len(commands) > first && continues(&commands[len(commands)-1]):
			commands[len(commands)-1].Text += "\n" + line
		case len(commands) == first:
			return nil, 0, fmt.Errorf("line %d: a console snippet begins with output", number)
		default:
			last := &commands[len(commands)-1]
			last.Want = append(last.Want, line)
		}
	}
	return commands, snippets, nil
}

// fileCommand returns the command that writes the file that begins with the first of some lines, or "" if none does.
func fileCommand(rest []string) string {
	if rest[0] != fence+"go" || len(rest) < 2 {
		return ""
	}
	name := writes.FindStringSubmatch(rest[1])
	end := slices.Index(rest, fence)
	if name == nil || end < 0 {
		return ""
	}
	return fmt.Sprintf("mkdir -p %s && cat > %s <<'END OF FILE'\n%s\nEND OF FILE",
		path.Dir(name[1]), name[1], strings.Join(rest[2:end], "\n"))
}

// continues reports whether the next line is a part of the command.
func continues(c *Command) bool { return len(c.Want) == 0 && strings.HasSuffix(c.Text, "\\") }
