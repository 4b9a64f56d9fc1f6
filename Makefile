# `make train` and `make test` set up all they need in .venv; the second time that costs nothing.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

# As many tests at once as there are cores, but no more than memory is likely to hold.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist worksteal

.PHONY: train test test-all bench setup setup-test lint clean

train: setup
	$(BIN)/python train.py --robot panda

test: setup-test
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not clients"

test-all: setup-test
	$(BIN)/python -m pytest $(PARALLEL)

# The adapters of arms through their makers' own clients, ROS 2 included.
.PHONY: test-clients
test-clients: setup-clients
	$(BIN)/python -m pytest -m clients tests/td3_robot/deploy/adapters

.PHONY: setup-clients
setup-clients: .venv/ready-clients

.venv/ready-clients: .venv/ready-test
	$(INSTALL) --editable ".[test,dev,franka-sim,ur,ros2]"
	touch $@

# The same on the newest of all packages, without constraints.txt, in .venv-newest. MuJoCo comes last, since the
# extra `fetch` holds it back; the tests of Fetch are then skipped.
NEWEST := .venv-newest/bin
.PHONY: test-newest
test-newest: chromium
	$(PYTHON) -m venv .venv-newest
	$(NEWEST)/pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager --editable ".[test]"
	$(NEWEST)/pip uninstall --quiet --yes mujoco  # 4.0 is in two packages, and 3.x would leave gaps in them
	$(NEWEST)/pip install --quiet --disable-pip-version-check --upgrade mujoco
	$(NEWEST)/python -m pytest $(PARALLEL) -m "not slow and not clients"

# Three minutes: what is fast, beside Stable-Baselines3 and, with AGAINST=COMMIT, an older commit of this repository.
bench: setup-test
	$(BIN)/python benchmarks/bench.py $(if $(AGAINST),--against $(AGAINST))

# What docs/explanation/reliability-and-security.md promises, tried hard: hours. COUNT is of each kind of attempt.
COUNT ?= 200
.PHONY: torture
torture: setup-test
	for script in exact_resume kills full_disk faults not_finite verified viewer; do \
		OMP_NUM_THREADS=1 $(BIN)/python tests/torture/$$script.py --count $(COUNT) || failed=1; done; \
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture/hostile_files.py --count $$((50 * $(COUNT))) && test -z "$$failed"

# Known weaknesses of the packages that are installed; asks a server on the internet.
.PHONY: audit
audit: setup
	$(BIN)/pip install --quiet --disable-pip-version-check pip-audit
	@$(BIN)/pip-audit --skip-editable --vulnerability-service osv 2>$(BIN)/../audit.log; status=$$?; \
	if grep -q requests.exceptions $(BIN)/../audit.log; then \
		echo "the server that knows weaknesses cannot be reached: nothing was audited" >&2; \
	else cat $(BIN)/../audit.log >&2; fi; exit $$status

lint: setup-test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright && $(BIN)/python tools/measure.py --check

# Counts of the code: lines, rooms, arrows, verbs. AGAINST=FOLDER: of another checkout, to compare.
.PHONY: measure
measure:
	$(PYTHON) tools/measure.py $(if $(AGAINST),--root $(AGAINST))

setup: .venv/ready

setup-test: .venv/ready-test chromium

# torch comes first and alone: resolved together with the rest, pip may fetch a second build of it to compare.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) "$$(grep ^torch== constraints.txt)"
	$(INSTALL) --editable .
	touch $@

.venv/ready-test: .venv/ready
	$(INSTALL) --editable ".[test,dev]"
	touch $@

# The same, all extras included, from files of the SHA-256 in constraints-hashes.txt alone: Python 3.11, Linux x86_64,
# PyTorch's CPU build, from an index that serves the same files.
.PHONY: setup-hashed hashes
setup-hashed:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement constraints-hashes.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch .venv/ready .venv/ready-test

# Our Gymnasium ids in the libraries of others, which are no part of the set-up.
.PHONY: test-libraries
test-libraries: setup-test
	$(BIN)/pip install --quiet --no-deps torchrl==0.13.3 tensordict==0.13.0 pyvers==0.2.3 orjson hoptorch \
		skrl==2.1.1 tianshou==2.0.1 sensai-utils overrides deepdiff==7.0.1 ordered-set numba llvmlite
	$(BIN)/python -m pytest tests/envs/test_other_libraries.py

# constraints-hashes.txt, from what the index serves for the versions in constraints.txt.
hashes: setup
	$(BIN)/pip install --quiet --dry-run --no-deps --ignore-installed --requirement constraints.txt \
		--report .venv/hashes.json
	$(BIN)/python tools/make_hashes.py .venv/hashes.json

# The Swift tests drive a real browser. On Debian and Ubuntu it is installed where that is allowed.
.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; \
	else echo "chromium is missing; the tests of the browser view need it: apt install chromium" >&2; fi

# The figures of README.md and the documentation: stale rows of benchmarks/results/ that pages use are measured.
.PHONY: results
results: setup-test
	$(BIN)/python benchmarks/laboratory.py --stale
	$(BIN)/python benchmarks/guard.py --stale
	$(BIN)/python benchmarks/figures.py --write
	$(BIN)/python benchmarks/figures.py

# The documentation site, docs/_build/html/index.html: warnings are errors, the notebook runs, the API is from the
# docstrings. It is read from the disk, without a server.
.PHONY: docs
docs: setup-test
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html
	@echo "read docs/_build/html/index.html"

# What continuous integration builds: the site with its API pages, warnings as errors, without running the notebook, which
# a test runs. A dead link inside the site is a warning. The links that leave it need a network: `make links`.
.PHONY: docs-check links
docs-check: setup-test
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --tag no_notebook docs docs/_build/check

links: setup-test
	$(BIN)/sphinx-build --quiet --builder linkcheck --tag quick docs docs/_build/links

# Once a night, with a network: all tests, the links that leave the site, known weaknesses.
.PHONY: nightly
nightly: test-all links audit

# What docs/results.md shows: the shipped run and its pictures.
.PHONY: run1 figures
run1: setup
	rm -rf checkpoints/run1
	$(BIN)/python train.py --robot panda --run run1

figures: setup-test
	$(BIN)/python evaluate.py --checkpoint checkpoints/pick_place --episodes 50 --episode 3 --record img/pick_place.png
	cp checkpoints/run1/learning_curve.png img/learning_curve.png

# docs/reference/gallery.md with its pictures, and the film that README.md opens with.
.PHONY: gallery film
gallery: setup-test
	$(BIN)/python docs/make_gallery.py gallery
film: setup-test
	$(BIN)/python docs/make_gallery.py film

# What docs/explanation/td3-and-options.md shows, drawn from the networks of run1.
.PHONY: pictures
pictures: setup
	$(BIN)/python docs/draw_td3.py

clean:
	rm -rf .venv .venv-newest *.egg-info
