#!/usr/bin/env bash
# Checks what can be checked without running anything.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
	printf 'not formatted, run gofmt -w:\n%s\n' "$unformatted" >&2
	exit 1
fi
go vet ./...
go tool staticcheck ./...
if command -v shellcheck >/dev/null; then
	shellcheck .ci/run scripts/*.sh
else
	echo "shellcheck is not installed: scripts are not checked" >&2
fi
