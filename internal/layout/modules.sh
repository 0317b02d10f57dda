#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The Watershed Authors
#
# Checks the modules of the checkout as they would be published: without go.work, and without the
# files around them.
#
#   internal/layout/modules.sh          check
#   internal/layout/modules.sh -write   run go mod tidy in every module, and do nothing else
#
# It commits the checkout, with what is not committed yet, to a temporary repository, tags that commit
# with the version that is published next, and lets the go command fetch our modules from there. The go
# command makes the zip files itself, as it does for a user. It checks that
#
# - all modules require each other at one version, and none has a replace directive
# - go mod tidy would change no go.mod and no go.sum
# - go install of cmd/watershed at the version builds a program that runs and knows its version
# - a new module can import the library, and requires neither Prometheus nor the dependencies of the
#   program
#
# A go.sum of this repository has no lines for the modules of this repository: their sums are not known
# before the commit is. go.work makes them unnecessary in a checkout, and users have their own go.sum.
# For that reason a plain go mod tidy fails in a module that requires others of the repository.
set -euo pipefail
cd "$(dirname "$0")/../.."
checkout=$PWD

fail() { printf 'modules: %s\n' "$@" >&2; exit 1; }

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
repository=$temporary/repository source=$temporary/source user=$temporary/user

# The modules below internal folders build the programs that tests run, or are tests. No other module
# requires them.
modules=$(git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod' ':!*internal/*' ':!*testdata/*' |
	while read -r file; do if [ -f "$file" ]; then dirname "$file"; fi; done)
path=$(awk '$1 == "module" { print $2 }' go.mod)

versions=$(for module in $modules; do
	awk -v path="$path" '$1 == "require" { $0 = $2 " " $3 }
		($1 == path || index($1, path "/") == 1) && $2 ~ /^v/ { print $2 }' "$module/go.mod"
done | sort -u)
[ "$(wc -w <<<"$versions")" -eq 1 ] ||
	fail "the modules must require each other at one version, they do at: ${versions//$'\n'/, }"
version=$versions

git init -q "$repository"
git --git-dir="$repository/.git" --work-tree=. add -A
git --git-dir="$repository/.git" -c user.name=modules -c user.email=modules@localhost -c commit.gpgsign=false \
	commit -q -m "$version"
for module in $modules; do
	if grep -qE '^replace[[:space:](]' "$module/go.mod"; then
		fail "$module/go.mod has a replace directive; go install would refuse it, put it into go.work"
	fi
	tag=$module/$version
	git --git-dir="$repository/.git" -c tag.gpgsign=false tag "${tag#./}"
done
git clone -q "$repository" "$source"

# Git finds our modules in the temporary repository. The go command finds others where they were found
# before: in the module cache, or at the proxy of the machine. It has a new module cache, because it
# takes for granted that a version never changes, and ours is another commit in the next run.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$repository.insteadOf" GIT_CONFIG_VALUE_0="https://$path"
export GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" GONOPROXY=$path GONOSUMDB=$path
export GOMODCACHE=$temporary/modules GOBIN=$user GOWORK=off GOFLAGS="-modcacherw -trimpath"

for module in $modules; do
	echo "tidy $module"
	cd "$source/$module"
	go mod tidy 2>"$temporary/log" || fail "go mod tidy in $module: $(<"$temporary/log")"
	if [ -f go.sum ]; then sed -i.own "\|^$path[ /]|d" go.sum; fi
	if git diff --quiet -- go.mod go.sum; then continue; fi
	if [ "${1-}" != -write ]; then fail "$module is not tidy (make tidy):" "$(git diff -- go.mod go.sum)"; fi
	for file in go.mod go.sum; do if [ -f "$file" ]; then cp "$file" "$checkout/$module/$file"; fi; done
done
if [ "${1-}" = -write ]; then exit; fi

echo "go install $path/cmd/watershed@$version"
mkdir "$user"
cd "$user"
go install "$path/cmd/watershed@$version" 2>"$temporary/log" || fail "go install: $(<"$temporary/log")"
./watershed version
[[ $(./watershed version) == "watershed $version "* ]] || fail "the installed program is not of version $version"

# A user's program imports each face of the library.
cat >main.go <<-EOF
	package main

	import (
		_ "$path"
		_ "$path/compat"
		_ "$path/fleet/directory"
		_ "$path/replica"
	)

	func main() {}
EOF
{ go mod init example.com/user && go get "$path@$version" && go mod tidy && go build -o /dev/null .; } \
	2>"$temporary/log" ||
	fail "a user's build: $(<"$temporary/log")"
if grep -E 'github.com/prometheus/|github.com/spf13/cobra|sigs.k8s.io/controller-runtime' go.mod; then
	fail "a user of the library requires the modules above"
fi
echo "a user of the library requires $(($(grep -c ' v' go.mod) - 1)) other modules"
