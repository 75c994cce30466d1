#!/usr/bin/env bash
# Installs the Debian packages that a target of the Makefile needs: those that are missing, and no others.
# usage: install-deps.sh demo | test | bench
set -euo pipefail

missing=()

# need PROGRAM PACKAGE
need() {
	command -v "$1" >/dev/null || missing+=("$2")
}

need_compiler() {
	local compiler
	for compiler in "${CC:-cc}" cc gcc clang tcc; do
		if command -v "$compiler" >/dev/null; then
			break
		fi
	done
	command -v "$compiler" >/dev/null || missing+=("$1")
	test -e /usr/include/stdio.h || missing+=(libc6-dev)
}

need_fusermount() {
	test "$(id -u)" -eq 0 || need fusermount3 fuse3
}

case "${1:-}" in
demo)
	need_compiler tcc # a hundredth of gcc's size, and the loop spends its time in the C library
	need gawk gawk
	need python3 python3
	need_fusermount
	;;
test)
	need gcc gcc # the race detector needs cgo
	need_compiler gcc
	need fio fio
	need fusermount3 fuse3
	need gawk gawk
	need python3 python3
	need shellcheck shellcheck
	;;
bench)
	need_compiler gcc
	need fio fio
	need bindfs bindfs
	need_fusermount
	;;
*)
	echo "usage: install-deps.sh demo | test | bench" >&2
	exit 2
	;;
esac

if [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi
echo "installing ${missing[*]}" >&2

root=()
if [ "$(id -u)" -ne 0 ]; then
	root=(sudo)
fi
if ! command -v apt-get >/dev/null || { [ ${#root[@]} -gt 0 ] && ! command -v sudo >/dev/null; }; then
	echo "cannot install them: this needs apt-get, and root or sudo. Please install them (or what your system calls them)." >&2
	exit 1
fi

apt() {
	"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 "$@" >&2
}

install=(install -y --no-install-recommends "${missing[@]}")
apt "${install[@]}" || { apt update && apt "${install[@]}"; }
