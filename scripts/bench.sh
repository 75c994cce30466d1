#!/usr/bin/env bash
# Runs tunefs bench beside two other filesystems of its kind. Arguments go to tunefs bench.
set -euo pipefail
cd "$(dirname "$0")/.."

go build -o dist/loopback github.com/hanwen/go-fuse/v2/example/loopback

exec dist/tunefs bench \
	--peer "loopback=$PWD/dist/loopback -q {mountpoint} {source}" \
	--peer "bindfs=bindfs -f {source} {mountpoint}" \
	"$@"
