#!/usr/bin/env bash
# Runs all tests: unit tests, tests on real mounts, and, if root runs it, what an ordinary user can run of the former.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t units < <(go list ./... | grep -v '/tests\(/\|$\)')
go test -race "${units[@]}"
go test -timeout 80m ./tests/...

if [ "$(id -u)" -ne 0 ]; then
	exit 0
fi

# Compiled by root, because another user may not reach Go and its caches.
ordinary_user=12345
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -m 777 "$dir/tmp"
chmod 755 "$dir"
for package in "${units[@]}"; do
	name=${package##*/}
	go test -c -o "$dir/$name.test" "$package"
	if [ ! -e "$dir/$name.test" ]; then
		continue # it has no tests
	fi
	echo "$package as an ordinary user"
	(cd "${package#*/}" && env TMPDIR="$dir/tmp" HOME="$dir/tmp" \
		setpriv --reuid="$ordinary_user" --regid="$ordinary_user" --clear-groups "$dir/$name.test")
done
