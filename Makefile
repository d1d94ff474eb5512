# What a developer or newcomer runs. Everything rests on `make install`: an environment in .venv with the locked packages that run, this
# package in it, the JVM's cache of Spark made and the broker's jars fetched; `make install-dev` adds what tests and checks need. A second
# run does nothing until a lock file or pyproject.toml changes.

PYTHON ?= python3
INSTANCES ?= 1
BIN := .venv/bin
STAMP := .venv/.installed
DEV_STAMP := .venv/.dev-installed
# Where Python is told to keep nothing that it has compiled, pytest compiles 300 modules again in each of its processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install install-dev demo demo-ha test check lint vectors vectors-pure vectors-spark clean

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml tools/install.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Tidemill needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) tools/install.py requirements.lock --package
	@touch $@

# What tests and checks need besides.
install-dev: $(DEV_STAMP)

$(DEV_STAMP): requirements-dev.lock $(STAMP)
	$(PYTHON) tools/install.py requirements-dev.lock
	@touch $@

demo: install
	@$(BIN)/tidemill demo --instances $(INSTANCES)

# Three instances with standbys and their page; one is killed, and the take-over is shown.
demo-ha: install
	@$(BIN)/tidemill demo-ha

# The instances' web page in a headless Chromium, screenshots in build/dashboard: needs chromium, chromedriver and selenium.
.PHONY: dashboard-check
dashboard-check: install-dev
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || (apt-get update -qq && apt-get install -y -qq chromium chromium-driver) >/dev/null
	@$(BIN)/python -c 'import selenium' 2>/dev/null || $(BIN)/python -m pip install --disable-pip-version-check -q selenium==4.51.0
	@PYTHONPATH=. $(BIN)/python -m tests.dashboard.dashboard_check

# Everything that has to hold before a change goes in: the pure tests, then the broker's and Spark's and the faults, file by file,
# each process with a broker and a Spark session of its own. Tests wait as much as they work: three processes keep two cores busy.
# mypy has one process, so the pure tests run next to it.
PROCESSES ?= 3
test: install-dev
	@$(MAKE) --no-print-directory -j 2 lint check
	$(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder -m "(broker or spark) and not (security or cluster)"

# TLS, logins, ACLs and secrets on brokers of their own, and every kind of bad input; prints what it has verified.
.PHONY: test-security
test-security: install-dev
	$(BIN)/pytest tests/security

# The same application on executors, of local-cluster and of a standalone master, which are killed; prints what it has verified.
.PHONY: test-cluster
test-cluster: install-dev
	$(BIN)/pytest -v tests/cluster tests/deploy

# Jars by checksum; packages by pip-audit, where a vulnerability service can be asked (exit code 3 where it can't).
.PHONY: audit
audit: install-dev
	@$(BIN)/python tools/audit.py

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The pure tests only: no JVM, no broker.
check: install-dev
	$(BIN)/pytest -n $(PROCESSES) -m "not broker and not spark"

# Every line of the vector files, and more drawn examples, instead of samples: the pure tests, with all programs in batches of one,
# seven, all and random sizes through the steps that run in a worker; then all programs on their real Spark plans.
vectors: vectors-pure vectors-spark

vectors-pure: install-dev
	TIDEMILL_ALL_VECTORS=1 $(BIN)/pytest -n 2 -m "not broker and not spark"

vectors-spark: install-dev
	TIDEMILL_ALL_VECTORS=1 $(BIN)/pytest -n 2 --dist worksteal tests/spark/test_operator_vectors.py tests/spark/test_program_vectors.py tests/spark/test_drawn_programs.py

.PHONY: bench
bench: install-dev
	$(BIN)/python benchmarks/wordcount.py --peers

# Experiments on a real broker: each prints its tables, and fails where a count is not exact. docs/experiments has their output.
.PHONY: experiment-scale-out experiment-rolling-bounce
experiment-scale-out: install-dev
	@$(BIN)/python experiments/scale_out.py

experiment-rolling-bounce: install-dev
	@$(BIN)/python experiments/rolling_bounce.py

.PHONY: experiment-java experiment-duplicates
experiment-java: install-dev
	@$(BIN)/python experiments/java_member.py

experiment-duplicates: install-dev
	@$(BIN)/python experiments/duplicates.py

.PHONY: experiment-failover soak
experiment-failover: install-dev
	@$(BIN)/python experiments/failover.py

# Random faults for so long; SEED repeats a run.
MINUTES ?= 10
soak: install-dev
	@$(BIN)/python experiments/soak.py --minutes $(MINUTES) $(if $(PROGRAM),--program $(PROGRAM)) $(if $(SEED),--seed $(SEED)) $(if $(BROKERS),--brokers $(BROKERS)) $(if $(THREADS),--threads $(THREADS)) $(if $(STANDBYS),--standbys $(STANDBYS)) $(if $(GUARANTEE),--guarantee $(GUARANTEE))

# The documentation as a site in build/site: pages, links, commands and programs in it are checked; warnings are errors.
DOCS_STAMP := .venv/.docs-installed
.PHONY: docs docs-tutorial wheel wheel-check
$(DOCS_STAMP): requirements-docs.lock $(DEV_STAMP)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c requirements.lock -c requirements-dev.lock -r requirements-docs.lock
	@touch $@

docs: install-dev $(DOCS_STAMP)
	@$(BIN)/python tools/docs_check.py

# Runs every command of the tutorial, on a broker of its own.
docs-tutorial: install-dev
	@$(BIN)/python tools/run_tutorial.py

# A wheel in dist/; wheel-check installs one into a fresh environment outside the checkout and runs it there (CHECK_PYTHON=python3.13).
wheel: install-dev
	@$(BIN)/python tools/wheel.py build

wheel-check: install-dev
	@$(BIN)/python tools/wheel.py check $(if $(CHECK_PYTHON),--python $(CHECK_PYTHON))

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
