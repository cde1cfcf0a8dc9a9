# The entry points of this repository. `make help` lists them; CONTRIBUTING.md explains them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Everything runs with the checkout's own tools first: Python and cmake from .venv, nasm from .tools if
# the system has none.
export PATH := $(CURDIR)/.venv/bin:$(PATH):$(CURDIR)/.tools/bin
export VIRTUAL_ENV := $(CURDIR)/.venv
unexport CONDA_PREFIX PYTHONHOME
# A first build is faster without; `CARGO_INCREMENTAL=1 make build` if you rebuild often.
export CARGO_INCREMENTAL ?= 0

STEP := scripts/step.sh
# The SIMD of JPEG and AV1 is a default feature that needs nasm; `setup` creates this file if nasm is not available.
FEATURES = $(shell test -e .tools/no-nasm && echo --no-default-features)
NOTICE = scripts/setup.sh --notice
# The profile of Cargo.toml: `dev` is shared with `cargo test`, `release` is what a wheel has and takes several times as long.
PROFILE ?= dev

.PHONY: help setup build wheel sdist demo docs test lint check bench peers fuzz miri clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1\t\2/' | while IFS=$$'\t' read -r name what; do printf '  make %-8s %s\n' "$$name" "$$what"; done

setup: ## create .venv with the development tools, and install nasm
	@scripts/setup.sh

build: setup ## build the Python package (and the command `kinograph`) into .venv; PROFILE=release as in a wheel
	@$(STEP) "build the package" maturin develop --profile $(PROFILE) --locked $(FEATURES)
	@$(NOTICE)

wheel: setup ## build the release wheel into dist/, and check it on every Python found here
	@$(STEP) "build and check the wheel" python scripts/release.py wheel $(FEATURES)
	@$(NOTICE)

sdist: setup ## build the source distribution into dist/, and install it without nasm and cmake
	@$(STEP) "build and check the source distribution" python scripts/release.py sdist

demo: build ## pack the sample recording, train a small policy from it, show where the time went
	@python examples/demo.py
	@$(NOTICE)

docs: setup ## build the documentation site into site/
	@$(STEP) "build the documentation" python scripts/docs.py

test: build ## run the Rust and the Python tests
	@$(STEP) "cargo test" env KINOGRAPH_FFMPEG="$$(echo .venv/lib/python3*/site-packages/av.libs)" SVT_LOG=1 cargo test --locked --workspace $(FEATURES)
	@$(STEP) "pytest" python -m pytest
	@$(NOTICE)

lint: build ## format, lints, docs, types, stubs, crate arrows, dependencies (deny.toml), versions, links
	@$(STEP) "cargo xtask check" cargo xtask check $(FEATURES)
	@$(NOTICE)

check: test lint ## everything CI runs

bench: PROFILE = release
bench: build ## measure this machine; writes target/bench/*.csv
	@python bench/run.py

PEERS := target/peers/venv/bin/python
peers: setup ## compare with other loaders (docs/measurements/comparison.md); ALOHA=episode.hdf5 adds the large images, QUICK=1 is one round
	@python bench/peers/setup.py
	@$(PEERS) bench/peers/data.py $(if $(ALOHA),--aloha $(ALOHA))
	@$(PEERS) bench/peers/run.py $(if $(QUICK),--rounds 1 --seconds 1)
	@$(PEERS) bench/peers/floor.py $(if $(QUICK),--rounds 1)
	@$(PEERS) bench/peers/report.py

fuzz: setup ## a short run of every fuzz target (needs nightly Rust and cargo-fuzz)
	@scripts/fuzz.sh

miri: setup ## interpret the tests of unsafe code with Miri (needs nightly Rust with the components miri and rust-src)
	@scripts/miri.sh

clean: ## remove everything that was built or installed here
	rm -rf .venv .tools target dist site python/kinograph/_core*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
