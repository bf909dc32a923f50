# Two commands on a fresh machine: `make run` and `make test`. Both install what is missing and use what is there.
.DEFAULT_GOAL := help
VENV := .venv
ENVBUILDER := $(VENV)/bin/envbuilder
PYTEST := $(VENV)/bin/python -m pytest

.PHONY: help setup run test test-long check unit integration faults fuzz soak controls hostile planted shipped accuracy bench images docs clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what is missing: engine, virtual environment, browser
	@scripts/setup engine python

run: setup ## Build and validate the quickstart environment, to a verdict
	@$(ENVBUILDER) run

test: setup ## Everything that CI runs: formats, types, unit, property, golden and real-engine tests
	@scripts/setup browser slurm
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(ENVBUILDER) render --check
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m "not long" --cov

test-long: setup ## What `make test` leaves out: minutes of measuring, further GPU images, new examples for properties
	@scripts/setup trace
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder --hypothesis-profile=explore -m "not engine and not network and not slow and not long" tests/unit tests/property
	@$(PYTEST) -m long

check: ## Formats, lint, types; no engine needed
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy

unit: ## Tests that need neither engine nor network
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m "not engine and not network and not slow and not long"

faults: setup ## Inject the faults of tests/faults/fault_table.py, every one: full disks, closed streams, damaged files
	@scripts/setup clock
	@$(PYTEST) tests/faults tests/unit/test_engine_faults.py tests/unit/test_pypi_faults.py

fuzz: setup ## Hostile input for every parser, towards a million cases; goes on where it stopped (MINUTES=20, GUIDED=1)
	@$(if $(GUIDED),scripts/setup fuzz)
	@nice -n 19 $(VENV)/bin/python -u tests/fuzz/fuzz.py --minutes $(or $(MINUTES),20) $(if $(GUIDED),--guided)

soak: setup ## Kill commands at random moments, run them again, compare what they made, count what is left (TRIALS=1000, KILLS=0, POOL=host|tiny|all)
	@$(VENV)/bin/python tests/soak/soak.py --trials $(or $(TRIALS),1000) --kills $(or $(KILLS),0) --pool $(or $(POOL),all)

controls: setup ## Run the negative controls: images broken on purpose, each of which must fail as it should
	@$(ENVBUILDER) controls

hostile: setup ## Build every broken and hostile image of tests/hostile, and hold each to its own finding
	@$(PYTEST) -n 2 -m engine tests/hostile

planted: setup ## Plant changes in real images and let `upgrade` find them, beside ten equal pairs; on a quiet machine
	@$(VENV)/bin/python tests/support/planted.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only "$(ONLY)")

shipped: setup ## Build and judge every environment that ships, into docs/shipped.md; goes on where it stopped
	@$(VENV)/bin/python scripts/shipped.py

images: setup ## Renew the build contexts in images/ from facts, wishes and locks
	@$(ENVBUILDER) render

accuracy: setup ## Hold reproduce's answers against real threads: fields, causes, what misleads, the nearest
	@PYTHONPATH=tests/support $(VENV)/bin/python tests/support/accuracy.py -v

bench: setup ## Measure: figures for the README, side by side in one run; sizes of GPU images too with GPU=1
	@for script in $(filter-out benchmarks/size.py benchmarks/start.py benchmarks/cold.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(VENV)/bin/python $$script; done
	@$(VENV)/bin/python benchmarks/size.py --flavors cpu $(if $(GPU),gpu) --page docs/size.md
	@$(VENV)/bin/python benchmarks/start.py
	@$(if $(GPU),$(VENV)/bin/python benchmarks/cold.py)

clean: ## Remove results, caches and the virtual environment; images stay
	rm -rf out .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist
