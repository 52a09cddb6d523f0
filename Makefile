# The README's two commands are `make demo` and `make test`; `make help` lists the rest.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO       ?= cargo
PREFIX      ?= /usr/local
DESTDIR     ?=
bindir      := $(DESTDIR)$(PREFIX)/bin
datadir     := $(DESTDIR)$(PREFIX)/share
# The only folder in which mount(8) and umount(8) look for helpers.
HELPERDIR   ?= /sbin
helperdir   := $(DESTDIR)$(HELPERDIR)
helpers     := mount.ubtrfs mount.fuse.ubtrfs mount.fuseblk.ubtrfs \
               umount.fuse.ubtrfs umount.fuseblk.ubtrfs
# Help texts name them.
pages_for_users := $(addprefix docs/,backups.md check.md commands.md features.md image-builders.md maintenance.md mount.md recovery.md)
# The target of their links; packages set their own.
HELPERLINK  ?= $(PREFIX)/bin/ubtrfs
ZSHDIR      ?= $(PREFIX)/share/zsh/site-functions
zshdir      := $(DESTDIR)$(ZSHDIR)
# The profile of the command and the libraries. The tests use the dev profile: it is part of their own build, and has
# more checks. Only the command line of make sets it, because an environment variable of this name may belong to
# another program.
PROFILE     := release
# As in cargo.
target      := $(or $(CARGO_TARGET_DIR),target)
built_in    := $(target)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
ubtrfs      := $(built_in)/ubtrfs
# The command writes its own manual pages and completions.
dist        := $(built_in)/dist
packages    := $(if $(filter release,$(PROFILE)),$(target),$(built_in))/deb
# Cargo leaves a library that tests have built among the dependencies.
archive      = $(if $(filter dev,$(PROFILE)),$(shell ls -t $(built_in)/deps/libubtrfs_c-*.a | head -n 1),$(built_in)/libubtrfs_c.a)
static_target := $(shell uname -m)-unknown-linux-musl
# If the kernel's btrfs is available, no test may skip it. Otherwise `unit` counts the skipped tests.
requiring    = $(shell scripts/has-kernel && echo UBTRFS_REQUIRE_KERNEL=1)
# Without incremental compilation, the first build of a checkout is faster by a third.
ifeq ($(wildcard $(target)/debug/deps),)
export CARGO_INCREMENTAL ?= 0
endif

# Packages whose unit tests do not depend on the machine; some tests of fuse and cli mount, or need root.
quick       := $(addprefix --package ubtrfs-,format device tree storage fs mkfs check stream fuse-server) \
               --package ubtrfs --package xtask

.PHONY: help setup build built demo test judges test-quick fmt clippy tidy unit unit-user outside python doc count pages deb deb-test static static-test conform conform-quick fresh-debian soak bench install library install-library uninstall clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14

setup: ## install the Debian packages that the demo and the tests need
	@scripts/setup

build: ## build target/release/ubtrfs, its manual pages and completions
	@command -v $(CARGO) >/dev/null || { echo "There is no $(CARGO) here: https://rustup.rs has it." >&2; exit 1; }
ifeq ($(PROFILE),dev)
	$(CARGO) test --workspace --locked --no-run
else
	$(CARGO) build --profile $(PROFILE) --locked --package ubtrfs-cli
endif
	rm -rf $(dist)
	$(ubtrfs) man $(dist)/man
	mkdir $(dist)/completions
	for shell in bash zsh fish; do $(ubtrfs) completions $$shell >$(dist)/completions/$$shell; done
	touch $(dist)/complete

# Compares file times instead of calling cargo, which root often lacks in `sudo make install`.
built:
	@if [ -x $(ubtrfs) ] && [ -e $(dist)/complete ] && \
	    [ -z "$$(find Cargo.* rust-toolchain.toml crates/*/Cargo.toml crates/*/src -newer $(dist)/complete -print -quit)" ]; \
	then exit 0; fi; \
	command -v $(CARGO) >/dev/null || \
	    { echo "There is no $(CARGO) here, and sources are newer than what is built: run 'make build' first." >&2; exit 1; }; \
	$(MAKE) build

demo: ## build, make an image, look inside, mount it, compare
	@scripts/setup --demo
	$(MAKE) build
	@UBTRFS=$(abspath $(ubtrfs)) scripts/demo

# The tests wait for disks and clocks for more than half of their time. The rest is built and run concurrently: short
# builds first, as cargo blocks other builds.
test: setup fmt tidy clippy ## everything that must pass before a change lands
	$(CARGO) test --workspace --locked --no-run
	$(MAKE) --no-print-directory --jobs=2 PROFILE=dev judges

judges: unit conform-quick outside python deb-test pages doc count

test-quick: fmt tidy ## format, tidy, and unit tests without root, mounts or the kernel: minutes
	UBTRFS_SKIP_KERNEL=1 $(CARGO) test --locked --lib --bins $(quick)

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

tidy:
	$(CARGO) xtask tidy

unit: ## all tests of the crates, two of their programs at once
	$(requiring) $(CARGO) xtask units

unit-user: ## as root: the tests of the crates as a user without root, which skips those that need it
	$(CARGO) xtask units --without-root

# Concurrent with the library for Python, which needs crates with the same features.
outside: ## build and run a program that has the library alone
	$(CARGO) build --locked --package outside --package ubtrfs-python
	$(target)/debug/outside

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) run --quiet --locked --package xtask-api

python: ## build the library for Python, and test it in target/python
	scripts/python-library

count:
	$(CARGO) xtask count $(if $(filter dev,$(PROFILE)),--dev)

pages: build ## run the commands that the pages for users show
	UBTRFS=$(abspath $(ubtrfs)) scripts/try-pages

# The library reuses the crates of the command's build.
deb: like_command := yes
deb: setup build library ## make Debian packages of the command and the library in target/deb
	scripts/deb $(packages) $(archive) $(if $(filter dev,$(PROFILE)),0)

deb-test: deb
	scripts/try-deb $(packages)

# musl, because glibc loads modules even when it is linked statically. rustup has Rust's part of it.
static: ## build target/static/ubtrfs, which needs no libraries, for containers and initramfs
	@scripts/setup --static
	@[ -d "$$(rustc --print target-libdir --target $(static_target))" ] || rustup target add $(static_target)
	$(CARGO) build --release --locked --package ubtrfs-cli --target $(static_target)
	install -D -s -m 0755 $(target)/$(static_target)/release/ubtrfs $(target)/static/ubtrfs

static-test: static ## use the static command in a root directory that has nothing else
	scripts/try-static $(target)/static/ubtrfs

# PARTS="fsx trees" selects parts; `make soak` runs a form that takes hours, `make test` a short one.
conform: setup build ## pjdfstest, fsx, cp, tar, rsync, git, a build, sqlite, a crowd and full volumes on a mount, and the kernel's view of it: an hour
	UBTRFS=$(abspath $(ubtrfs)) scripts/conform $(PARTS)

conform-quick: setup build
	$(requiring) UBTRFS=$(abspath $(ubtrfs)) $(if $(filter dev,$(PROFILE)),UBTRFS_CONFORM_HELPER=$(built_in)/ubtrfs-conform) scripts/conform --quick $(PARTS)

# GOALS="demo deb" selects goals. Its tests skip missing features of the machine, as usual.
fresh-debian: ## as root: the demo, the packages and the tests in a bare Debian of debootstrap, with git, make and Rust: hours
	@scripts/setup --fresh
	scripts/fresh-debian $(GOALS)

soak: setup build ## all tests and conform in their long form: hours
	UBTRFS_SOAK=1 $(CARGO) test --workspace --locked --release -- --nocapture
	UBTRFS_SOAK=1 UBTRFS=$(abspath $(ubtrfs)) scripts/conform $(PARTS)
	$(MAKE) static-test
	$(MAKE) pages count deb-test unit-user
	$(MAKE) fresh-debian

# QUICK=1 takes a few minutes; BENCH="--rounds 5 s0-dbench" selects rounds and workloads.
bench: build ## the published workloads against the kernel's btrfs; QUICK=1: a short form
	@scripts/setup --bench
	$(CARGO) build --release --locked --package ubtrfs-bench
	$(target)/release/ubtrfs-bench $(if $(QUICK),--quick) $(BENCH)

# Links named btrfs, mkfs.btrfs or fsck.btrfs make ubtrfs act as that command. They would shadow btrfs-progs, so they
# are not installed here: `ln -s ubtrfs $(PREFIX)/bin/mkfs.btrfs` makes one. Nothing is built for root after `make
# build`.
install: built ## install the command, its manual pages and completions below PREFIX, and mount helpers
	install -D -s -m 0755 $(ubtrfs) $(bindir)/ubtrfs
	install -d $(helperdir)
	for helper in $(helpers); do ln -sf $(HELPERLINK) $(helperdir)/$$helper; done
	install -d $(datadir)/man/man1
	install -m 0644 -t $(datadir)/man/man1 $(dist)/man/*
	install -d $(datadir)/doc/ubtrfs
	install -m 0644 -t $(datadir)/doc/ubtrfs $(pages_for_users)
	install -D -m 0644 $(dist)/completions/bash $(datadir)/bash-completion/completions/ubtrfs
	install -D -m 0644 $(dist)/completions/zsh $(zshdir)/_ubtrfs
	install -D -m 0644 $(dist)/completions/fish $(datadir)/fish/vendor_completions.d/ubtrfs.fish

library: ## build the library for C
ifeq ($(PROFILE),dev)
	$(CARGO) test --workspace --locked --no-run
else
	$(CARGO) rustc --profile $(PROFILE) --locked --package ubtrfs-c --lib --crate-type staticlib $(if $(like_command),--features like-command)
endif

install-library: ## install the library for C below PREFIX, with its header and pkg-config file
	scripts/c-library $(archive) $(DESTDIR)$(PREFIX) $(PREFIX)

uninstall: ## remove what install put there
	rm -f $(addprefix $(helperdir)/,$(helpers))
	rm -f $(bindir)/ubtrfs $(datadir)/man/man1/ubtrfs.1 $(datadir)/man/man1/ubtrfs-*.1 \
	    $(datadir)/bash-completion/completions/ubtrfs $(zshdir)/_ubtrfs \
	    $(datadir)/fish/vendor_completions.d/ubtrfs.fish
	rm -f $(addprefix $(datadir)/doc/ubtrfs/,$(notdir $(pages_for_users)))
	rm -f $(DESTDIR)$(PREFIX)/lib/libubtrfs.{a,so,so.*} $(DESTDIR)$(PREFIX)/lib/pkgconfig/ubtrfs.pc \
	    $(DESTDIR)$(PREFIX)/include/ubtrfs.h

clean: ## remove what was built
	$(CARGO) clean
