# What can be done here; `make help` explains it. Longer steps are in scripts/.

PREFIX ?= /usr/local
DESTDIR ?=
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help build demo test soak bench lint install clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s%s\n", $$1, $$2 }' Makefile

build: ## build dist/tunefs
	go build -o dist/tunefs ./cmd/tunefs

demo: ## show what a block size is worth, in under two minutes (ARGS: flags of tunefs demo)
	@scripts/install-deps.sh demo
	@$(MAKE) --no-print-directory build
	@dist/tunefs demo $(ARGS)

test: ## install what tests need, lint, and run all tests
	@scripts/install-deps.sh test
	@scripts/lint.sh
	@scripts/test.sh

soak: export TUNEFS_SOAK = 1
soak: test ## as test, with the long runs

bench: ## measure against the disk and other filesystems, in a quarter of an hour (ARGS: suites and flags of tunefs bench)
	@scripts/install-deps.sh bench
	@$(MAKE) --no-print-directory build
	@scripts/bench.sh $(ARGS)

lint: ## check format, vet, staticcheck, shellcheck
	@scripts/lint.sh

install: ## install to PREFIX (/usr/local) and as mount.fuse.tunefs for mount(8), below DESTDIR
	@test -x dist/tunefs || $(MAKE) --no-print-directory build
	install -D -m 755 dist/tunefs $(DESTDIR)$(PREFIX)/bin/tunefs
	install -d $(DESTDIR)/sbin
	ln -sf $(PREFIX)/bin/tunefs $(DESTDIR)/sbin/mount.fuse.tunefs

clean: ## remove what was built
	rm -rf dist
