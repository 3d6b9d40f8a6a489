# Each verb calls one command. `make` alone prints this list.
SHELL := bash
VENV ?= .venv
PY := $(VENV)/bin/python
.DEFAULT_GOAL := help

help: ## print the verbs
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 22

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

# torch and XGBoost: 6 GB that neither the demo nor the cluster's tests need
$(VENV)/.train: $(VENV)/.ready requirements/train.txt
	$(PY) -m pip install --quiet --require-hashes -r requirements/train.txt
	touch $@

demo: $(VENV)/.ready ## a cluster, the operator, a simulation that gets faster: one command
	$(PY) -m e2e.demo

demo-inference: $(VENV)/.ready ## a slimmable CNN served under recorded traffic, a pod killed on the way, nothing lost
	$(PY) -m e2e.demo_inference

test: $(VENV)/.train ## unit, property, component and contract tests
	$(PY) -m pytest tests

e2e: $(VENV)/.ready ## the tests that need a real cluster (makes it first)
	$(PY) -m pytest e2e --with-e2e

verify: $(VENV)/.ready ## regenerate everything, find no difference; lint, types, import contracts
	$(PY) -m e2e.verify

generate: $(VENV)/.ready ## write the generated files: CRDs, chart, references
	$(VENV)/bin/slimscale generate

fix: $(VENV)/.ready ## format and mend what the linter can
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

train: train-threads train-router ## both learned models again, as the next two verbs do

train-threads: $(VENV)/.train ## simulate loads and train the operator network again (about 7 minutes on 2 free cores)
	$(PY) -m slimscale.training train

train-router: $(VENV)/.train ## train the routing policy again in the simulator (under 45 minutes on 2 cores)
	$(PY) -m slimscale.training.router train

train-cnn: $(VENV)/.train ## train the slimmable CNN again and export one graph a width (about 15 minutes)
	$(PY) -m slimscale.training.slimmable train

bench: $(VENV)/.train ## measure every way to choose threads on simulated loads and write docs/results (about 30 minutes)
	$(VENV)/bin/slimscale bench threads --out docs/results

docs: generate ## the generated part of docs/

clean: ## remove the virtual environment and the test cluster
	-if [ -x $(PY) ]; then $(PY) -m e2e.cluster down; else echo "no $(VENV): a cluster of this checkout stays; make verify makes it anew, then make clean"; fi
	rm -rf $(VENV) .bench build dist .mypy_cache .ruff_cache .pytest_cache

.PHONY: help demo demo-inference test e2e verify generate fix train train-threads train-router bench docs clean train-cnn
