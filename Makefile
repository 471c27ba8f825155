# What a person does with a clone. Every goal installs what it needs (Debian 12, Ubuntu 24.04), says so, and can be repeated.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

FUZZ_SECONDS ?= 60

.PHONY: help
help: ## show this list
	@echo "Lockstep: make GOAL, where GOAL is one of"
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

.PHONY: run
run: ## build, serve a small model on four ranks, ask it one question, stay until Ctrl-C (PORT=8000)
	@tools/run.sh

.PHONY: run-once
run-once: ## the same, but stop after the answer: exit 0 when it is right
	@RUN_ONCE=1 tools/run.sh

.PHONY: build
build: ## build everything (build/release)
	@tools/install_packages.sh build
	@tools/build.sh release

.PHONY: test
test: ## build and run every test
	@tools/install_packages.sh build
	@tools/test.sh release

.PHONY: asan
asan: ## every test of the code under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/install_packages.sh asan
	@tools/test.sh asan

.PHONY: tsan
tsan: ## every test of the code under ThreadSanitizer
	@tools/install_packages.sh build
	@tools/test.sh tsan

.PHONY: test-clients
test-clients: ## run lm-eval and aiperf against the server; installs about 1.5 GB from PyPI once, skipped without it
	@tools/install_packages.sh build
	@tools/build.sh release lockstep
	@python3 tests/api/evaluators_test.py build/release/bin/lockstep . || { s=$$?; [ $$s -eq 77 ] || exit $$s; }

.PHONY: test-gpu
test-gpu: ## build the CUDA backend and run its tests; what needs a GPU is skipped where there is none
	@tools/install_packages.sh build
	@tools/test_gpu.sh

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZ_SECONDS (60), two at a time; NAMES="json ..." picks some
	@tools/install_packages.sh asan
	@tools/build.sh asan fuzzers
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/run_fuzzers.sh $(NAMES)

.PHONY: format
format: ## lay out every source as .clang-format says
	@tools/install_packages.sh format
	@tools/format.sh write

.PHONY: check-format
check-format: ## say which sources are laid out otherwise
	@tools/install_packages.sh format
	@tools/format.sh check

.PHONY: lint
lint: ## clang-tidy on the sources that differ from main; ALL=1 for every source
	@tools/install_packages.sh lint
	@tools/lint.sh $(if $(ALL),all,changed)

.PHONY: bench
bench: ## build and run the benchmarks; JSON goes to build/bench/results; NAMES="planning ..." picks some
	@tools/install_packages.sh bench
	@tools/bench.sh $(NAMES)

.PHONY: clean
clean: ## remove build/
	@rm -rf build
