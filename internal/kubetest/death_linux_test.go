// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

func TestProcess_diesWithItsStarter(t *testing.T) {
	skipUnlessBuilt(t)
	for _, how := range []string{"panic", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), lifeVariable+"="+how, "KUBETEST_DIR="+t.TempDir())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			var pids []int
			for lines.Scan() {
				words := strings.Fields(lines.Text())
				if len(words) == 0 || words[0] != "pids" {
					t.Errorf("child: %s", lines.Text())
					continue
				}
				for _, w := range words[1:] {
					pid, err := strconv.Atoi(w)
					if err != nil || pid == 0 {
						t.Fatalf("child: %s", lines.Text())
					}
					if how == "kill" && !alive(pid) {
						t.Errorf("process %d is gone before its starter was killed", pid)
					}
					pids = append(pids, pid)
				}
				if how == "kill" {
					_ = cmd.Process.Kill()
				}
			}
			err = cmd.Wait()
			if err == nil {
				t.Error("the child ended well")
			}
			if how == "panic" && !strings.Contains(stderr.String(), "as a test might") {
				t.Errorf("the child did not panic: %v\n%s", err, &stderr)
			}
			if len(pids) != 2 {
				t.Fatalf("process ids %v, want two", pids)
			}
			for _, pid := range pids {
				expect.Soon(t, fmt.Sprintf("process %d ends with its starter", pid), func() bool { return !alive(pid) })
			}
		})
	}
}

// alive reports whether a process runs. It returns false for a zombie: there may be no
// process to reap it.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
