# Two commands on a fresh machine: `make run` and `make test`. Both install what is missing first.
.DEFAULT_GOAL := help
VENV := .venv
PYTHON := $(VENV)/bin/python
ENVBUILDER := $(VENV)/bin/envbuilder
PYTEST := $(PYTHON) -m pytest --dist loadfile --no-loadscope-reorder

# Without byte code, every command that a test starts compiles 300 modules first: half a second.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run lint test not-full test-full fuzz soak shipped images bench clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install the engine and the development tools, if they are missing
	@scripts/setup engine dev

run: ## Build and validate the quickstart environment
	@scripts/setup engine python
	@$(ENVBUILDER) run

lint: ## Check formats, lint, types and the generated files in images/
	@scripts/setup dev
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/lint-imports >/dev/null || $(VENV)/bin/lint-imports
	@$(VENV)/bin/vermin --no-tips --quiet --violations -t=3.7- --exclude importlib.metadata --exclude os.memfd_create envbuilder/probes
	@$(VENV)/bin/shellcheck -x -P SCRIPTDIR -s sh templates/steps/*
	@$(VENV)/bin/shellcheck -x .ci/run scripts/setup scripts/lib/*.sh tests/faults/prelude.sh
	@$(VENV)/bin/codespell -D - -D docs/words.txt -L ontop,nome,chage,regist --skip envbuilder/reproduce/messages,envbuilder/reproduce/report \
	  *.md Makefile docs envbuilder templates images/shared/steps scripts benchmarks matrices examples
	@$(VENV)/bin/mypy
	@$(ENVBUILDER) render --check

test: ## Run what CI runs: lint, and every test that is not marked `full`
	@scripts/setup engine dev registry browser
	@$(MAKE) --no-print-directory -j 2 lint not-full

not-full:
	@$(PYTEST) -n 3 -m "not full"  # on 2 cores: many tests wait for an engine or a registry

test-full: ## Run what `make test` leaves out, in at most 45 minutes: all controls, adversarial images, long tests
	@scripts/setup engine dev registry compose browser slurm metrics clock trace
	@timeout --kill-after=60 45m $(PYTEST) -n 5 --hypothesis-profile=explore -m "full or law" \
	  tests/property $$(grep -rlwE 'full|given' tests --include='test_*.py' | grep -v '^tests/property')

fuzz: ## Fuzz every parser, guided by coverage (MINUTES=20, ONLY=target)
	@scripts/setup fuzz
	@nice -n 19 $(PYTHON) -u tests/fuzz/fuzz.py --minutes $(or $(MINUTES),20) $(if $(ONLY),--only $(ONLY))

soak: setup ## Kill commands at random moments, run them again and compare the results (TRIALS=1000, POOL=host|tiny|fleet)
ifeq ($(POOL),fleet)
	@FLEET_ROUNDS=$(or $(TRIALS),20) $(PYTHON) -m pytest -n 0 -q -m full -k random_kills tests/integration/test_fleet_dask.py
else
	@$(PYTHON) tests/soak/soak.py --trials $(or $(TRIALS),1000) --pool $(or $(POOL),tiny)
endif

shipped: setup ## Build and validate every shipped environment, into docs/shipped.md; resumes where it stopped
	@$(PYTHON) scripts/shipped.py

images: ## Generate the build contexts in images/ again
	@scripts/setup dev
	@$(ENVBUILDER) render

bench: setup ## Run the benchmarks of benchmarks/README.md (GPU=1 adds GPU images)
	@$(PYTHON) benchmarks/plan.py
	@$(PYTHON) benchmarks/choose.py
	@$(PYTHON) benchmarks/suite.py
	@$(PYTHON) benchmarks/size.py --flavors cpu $(if $(GPU),gpu) --page docs/results/size.md
	@$(PYTHON) benchmarks/start.py
	@$(if $(GPU),$(PYTHON) benchmarks/cold.py)

clean: ## Remove results, caches and the virtual environment; images stay
	rm -rf out .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
