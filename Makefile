# The commands of this repository; `make help` lists them. Each target sets up what it needs.
PYTHON ?= python3
SEEDS ?= 500
FIRST ?=
LOSSES ?= 50
SEED ?= 1
STEPS ?= 10000000
RETENTION_SECONDS ?= 1800
LEDGERS ?= 1000000
NAMESPACE ?= default
RELEASE ?= oncelog
CHAOS ?=
PROOF ?=
ONLY ?=
BASE ?= main
RUNS ?= 10
LOAD ?= 0
BIN := .venv/bin
STAMP := .venv/.stamp
COMPILE = $(BIN)/uv pip compile --generate-hashes --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	--no-emit-index-url --no-header --no-annotate --quiet
# The clients that `pulsar-proof` gets.
PULSAR_PROOF := build/pulsar_clients/proof
PROTOS = $(sort $(wildcard proto/*/wire/*.proto proto/oncelog/core/formats/wire/*.proto))
WIRES = $(sort $(patsubst proto/%/,%,$(dir $(PROTOS))))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup proto kafka-tables guarantees lint measure format test test-core test-doors test-effects test-spark test-lab test-changed test-steady proofs sim demo spark-proof jobs-proof fault-proof effects-proof effects-comparison copier-proof kafka-java-proof kafka-go-proof pulsar-java-proof pulsar-go-proof pulsar-suites-proof pulsar-proof kafka-proof kafka-suites-proof verdicts-proof upgrade-proof retention-proof ledgers-proof records-proof console-proof smoke smoke-storage smoke-spark chaos bench images dist lock clean tools tools-java tools-librdkafka how-long

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-13s %s\n", $$1, $$2}'

setup: $(STAMP) ## a virtualenv in .venv with all dependencies, checked by hash (a large download the first time)

# services/ is on the path of the environment, so all distributions are installed editable.
$(STAMP): requirements.lock pyproject.toml
	@echo "==> .venv: dependencies of requirements.lock, by hash"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check --use-pep517 --require-hashes -r requirements.lock
	$(BIN)/pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@touch $@

proto: $(STAMP) ## generate services/*/wire from proto/ (OUT=dir: elsewhere)
	@for wire in $(WIRES); do mkdir -p $(or $(OUT),services)/$$wire && rm -f $(or $(OUT),services)/$$wire/*_pb2* || exit 1; done
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m grpc_tools.protoc -I proto --python_out=$(or $(OUT),services) --mypy_out=quiet:$(or $(OUT),services) $(PROTOS)

kafka-tables: $(STAMP) ## generate the tables of Kafka's messages from the definitions that kafka-python has
	$(BIN)/python -m tests.suite.kafka_tables > .venv/kafka_tables.py
	mv .venv/kafka_tables.py services/oncelog_doors/wire/kafka_tables.py

guarantees: $(STAMP) ## generate tests/GUARANTEES.md from the tests' markers and the planted bugs
	$(BIN)/python -m tests.tidy.guarantees

lint: $(STAMP) ## run ruff, mypy --strict and the import rules; print the measure
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@$(MAKE) --no-print-directory measure

measure: $(STAMP) ## code lines by room, files of the walks, seconds of tests; what differs from a revision (AGAINST=main)
	@$(BIN)/python -m tests.tidy.measure $(if $(AGAINST),--against $(AGAINST))

format: $(STAMP) ## format the source
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: how-long tools $(STAMP) ## run lint and all default tests in parallel, with a line of progress every 15 seconds (ONLY=names of parts)
	@$(BIN)/python -m tests.suite $(ONLY)

test-core: $(STAMP) ## run the tests of the core only, in a minute
	@$(BIN)/python -m tests.suite core

test-doors: $(STAMP) ## run the tests of the distribution oncelog_doors
	@$(BIN)/python -m tests.suite doors

test-effects: tools $(STAMP) ## run the tests of the distribution oncelog_effects
	@$(BIN)/python -m tests.suite effects

test-spark: tools $(STAMP) ## run the tests of the distribution oncelog_spark
	@$(BIN)/python -m tests.suite spark

test-lab: tools $(STAMP) ## run the tests of the distribution oncelog_lab
	@$(BIN)/python -m tests.suite lab

test-changed: tools $(STAMP) ## run the tests that depend on the files that differ from main (BASE=another revision)
	@$(BIN)/python -m tests.suite --changed $(BASE)

test-steady: tools $(STAMP) ## run `make test` RUNS times, ten unless given, beside LOAD processes that compute, none unless given
	@$(BIN)/python -m tests.suite.steady --runs $(RUNS) --load $(LOAD)

proofs: tools $(if $(filter kafka-java pulsar-java pulsar-suites pulsar-defects,$(or $(ONLY),pulsar-java)),tools-java) $(if $(filter kafka-suites,$(or $(ONLY),kafka-suites)),tools-librdkafka) $(STAMP) ## run the proofs that the default tests leave to the night (ONLY=names, see python -m tests.suite --list)
	@$(BIN)/python -m tests.suite --proofs $(ONLY)

# Programs that the tests start and that no Python package contains. What is missing is installed: in CI without a
# question, elsewhere not without a yes.
INSTALL_MISSING = [ -n "$$missing" ] || exit 0; \
	echo "the tests need programs that are not installed:" $$missing; \
	answer=n; \
	if [ "$$(id -u)" != 0 ]; then :; \
	elif [ "$$CI" = true ]; then answer=y; \
	elif [ -t 0 ]; then printf 'install them with apt-get? [y/N] '; read -r answer; fi; \
	case $$answer in \
		[yY]*) apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing ;; \
		*) echo "install them first (as root): apt-get install" $$missing >&2; exit 1 ;; \
	esac

# Redis, PostgreSQL, a complete Java for Spark, a browser for the console, and kcat, a client of Kafka.
tools:
	@missing=; command -v redis-server >/dev/null || missing=redis-server; \
	command -v java >/dev/null || missing="$$missing openjdk-17-jre-headless"; \
	set -- /usr/lib/postgresql/*/bin/postgres; command -v postgres >/dev/null || [ -x "$$1" ] || missing="$$missing postgresql"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v kcat >/dev/null || missing="$$missing kcat"; \
	$(INSTALL_MISSING)

# What fetches and compiles the programs with Java clients; only their proofs need it.
tools-java:
	@missing=; command -v mvn >/dev/null || missing=maven; \
	command -v javac >/dev/null || missing="$$missing openjdk-17-jdk-headless"; \
	$(INSTALL_MISSING)

# What compiles librdkafka's tests, with zstd; only their proof needs it.
tools-librdkafka:
	@missing=; command -v npm >/dev/null || missing=npm; \
	command -v g++ >/dev/null || missing="$$missing g++"; \
	[ -e /usr/include/openssl/ssl.h ] || missing="$$missing libssl-dev"; \
	[ -e /usr/include/zlib.h ] || missing="$$missing zlib1g-dev"; \
	[ -e /usr/include/zstd.h ] || missing="$$missing libzstd-dev"; \
	$(INSTALL_MISSING)

# Before anything is downloaded or run.
how-long:
	@echo "==> make test takes about ten minutes on two cores, with a line of progress every 15 seconds; the first time"
	@echo "    it also downloads half a gigabyte into .venv. make test-core takes a minute."

sim: $(STAMP) ## simulate a cluster under faults: SEEDS seeds of each of seven kinds, 500 unless given, others each day or from FIRST on
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(FIRST),--first $(FIRST))

demo: $(STAMP) ## publish a file effectively once while processes are killed
	$(BIN)/oncelog demo --plot build/demo.svg

upgrade-proof: $(STAMP) ## upgrade and roll back a cluster under load, in random mixes with the former version (SEED=, PROOF=more options)
	$(BIN)/python -m tests.upgrade_proof --seed $(SEED) $(PROOF)

spark-proof: tools $(STAMP) ## kill all processes while Spark copies a topic, and compare with plain Python (SEED=, PROOF=more options)
	$(BIN)/python -m tests.spark_proof --seed $(SEED) $(PROOF)

jobs-proof: tools $(STAMP) ## kill export, import and compact, run them again, compare with plain Python, audit (SEED=, PROOF=more options)
	$(BIN)/python -m tests.jobs_proof --seed $(SEED) $(PROOF)

fault-proof: $(STAMP) ## 20 minutes of storage faults with real processes, every message and copy checked (SEED=, PROOF=more options)
	$(BIN)/python -m tests.fault_proof --seed $(SEED) $(PROOF)

effects-proof: tools $(STAMP) ## kill and stop programs with effects at every step, drop the answers of 50 COMMITs, count every effect (SEED=)
	EFFECTS_SEED=$(SEED) $(BIN)/pytest -s -q tests/effects/effects_proof/seams.py

effects-comparison: tools $(STAMP) ## the same effect in Oncelog, Kafka, Redis and Celery under the same faults, as a table; needs Maven (SEED=, PROOF=more options)
	$(BIN)/python -m tests.effects_comparison --seed $(SEED) $(PROOF)

copier-proof: $(STAMP) ## kill the copiers of docs/recipes.md a hundred times, move them, run them twice at once (SEED=)
	COPIER_SEED=$(SEED) $(BIN)/pytest -s -q tests/cluster/recipes/copier_proof.py

kafka-java-proof: tools tools-java $(STAMP) ## Java's clients of Kafka and its tools publish and read through a door, also through kills; needs Maven and a JDK
	$(BIN)/pytest -q tests/doors/clients/kafka_java

kafka-go-proof: tools $(STAMP) ## Go's clients of Kafka publish, read, share groups and administer through a door, also through kills; needs Go 1.26 or a newer one
	$(BIN)/pytest -q tests/doors/clients/kafka_go

pulsar-java-proof: tools tools-java $(STAMP) ## programs with Java clients of Pulsar publish and read through a door, and are killed; pulsar-admin's commands; needs Maven and a JDK
	$(BIN)/pytest -q tests/doors/clients/java

pulsar-go-proof: tools $(STAMP) ## programs with Pulsar's Go client publish and read through a door, through kills; needs Go 1.24 or a newer one
	$(BIN)/pytest -q tests/doors/clients/go

pulsar-suites-proof: tools tools-java $(STAMP) ## Pulsar's own tests of its Go and Java clients in front of a door, and of Python's with PULSAR_CLIENT_PYTHON=checkout; tests/doors/suites lists what is left out; needs Go 1.24, Maven, a JDK, and the ports 6650 and 8080
	$(BIN)/python -m tests.doors.suites.go_suite
	$(BIN)/python -m tests.doors.suites.java_suite
	$(if $(PULSAR_CLIENT_PYTHON),$(BIN)/python -m tests.doors.suites.python_suite --sources $(PULSAR_CLIENT_PYTHON))

kafka-suites-proof: tools tools-librdkafka $(STAMP) ## Kafka's own tests of librdkafka and kafka-python in front of a door, of aiokafka with AIOKAFKA=checkout, and of confluent-kafka with CONFLUENT_KAFKA=checkout; tests/doors/suites lists what is left out; needs npm and a C++ compiler
	$(BIN)/python -m tests.doors.suites.librdkafka_suite
	$(BIN)/python -m tests.doors.suites.kafka_python_suites kafka-python
	$(if $(AIOKAFKA),$(BIN)/python -m tests.doors.suites.kafka_python_suites aiokafka --sources $(AIOKAFKA))
	$(if $(CONFLUENT_KAFKA),$(BIN)/python -m tests.doors.suites.kafka_python_suites confluent-kafka --sources $(CONFLUENT_KAFKA))

pulsar-proof: tools-java $(STAMP) ## defects of Pulsar, shown with its own clients, and what a door makes of them; needs Maven and a JDK, and Go for its rows (PROOF=more options)
	@mkdir -p $(PULSAR_PROOF)/go
	mvn -q -B -f tests/doors/clients/java/client_4/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(PULSAR_PROOF)/jars
	@go=; if command -v go >/dev/null; then \
		cp tests/doors/clients/go/programs/go.* services/oncelog_doors/proof/pulsar/clients/go/main.go $(PULSAR_PROOF)/go; \
		(cd $(PULSAR_PROOF)/go && GOMODCACHE=$$PWD/../../go-modules GOCACHE=$$PWD/../../go-built GOFLAGS=-modcacherw go build -o client .) || exit 1; \
		go="--go $(PULSAR_PROOF)/go/client"; \
	fi; \
	$(BIN)/python -m oncelog_doors pulsar-proof --java $(PULSAR_PROOF)/jars $$go $(PROOF)

kafka-proof: $(STAMP) ## defects of Kafka's deduplication, shown with its own clients, and what a door makes of them (PROOF=more options)
	$(BIN)/python -m oncelog_doors kafka-proof $(PROOF)

verdicts-proof: $(STAMP) ## compare an owner over gRPC with the reference model for STEPS steps, 10 million unless given (SEED=)
	VERDICTS_SEED=$(SEED) VERDICTS_STEPS=$(STEPS) $(BIN)/pytest -q tests/contract/owner/reference

retention-proof: $(STAMP) ## a topic under constant load with retention by size: disk space over RETENTION_SECONDS
	$(BIN)/python -m tests.fault_proof --only retention --retention-seconds $(RETENTION_SECONDS)

ledgers-proof: $(STAMP) ## a topic with LEDGERS ledgers, a million unless given: takeover, reads, trim, as a table
	$(BIN)/python -m tests.ledgers_proof --ledgers $(LEDGERS)

records-proof: $(STAMP) ## lose ZooKeeper LOSSES times, 50 unless given, below a cluster under load, and restore it (PROOF=more options)
	$(BIN)/python -m tests.records_proof --seeds $(LOSSES) $(PROOF)

console-proof: tools $(STAMP) ## the console with 5,000 topics and 100,000 producers, 50 viewers and killed processes; pictures in OUT, or build/console (PROOF=more options)
	$(BIN)/python -m tests.console_proof proof $(or $(OUT),build/console) $(PROOF)

smoke: $(STAMP) ## install, kill pods, upgrade under load and uninstall in the current kube context (IMAGES=values file)
	IMAGES=$(IMAGES) $(BIN)/pytest -s tests/smoke

smoke-storage: $(STAMP) ## remove storage nodes, replace volumes and lose ZooKeeper under load there (IMAGES=values file)
	IMAGES=$(IMAGES) $(BIN)/pytest -s tests/smoke_storage

smoke-spark: $(STAMP) ## run Spark jobs there while executors and drivers are killed (IMAGES=values file)
	IMAGES=$(IMAGES) $(BIN)/pytest -s tests/smoke_spark

chaos: $(STAMP) ## inject faults for 20 minutes in the current kube context (NAMESPACE=, RELEASE=, SEED=, CHAOS=more options)
	$(BIN)/oncelog chaos run --seconds 1200 --quiet 60 --seed $(SEED) --namespace $(NAMESPACE) --release $(RELEASE) $(CHAOS)

bench: $(STAMP) ## measure this machine, as ratios to its limits
	$(BIN)/oncelog bench all

images: ## build container images: IMAGES="services pipeline …", ARCHIVE=dir, BASE=…; see docker/build.sh --help
	docker/build.sh $(if $(ARCHIVE),--archive "$(ARCHIVE)") $(IMAGES)

dist: $(STAMP) ## build wheels and sdist in dist/, install each into a new virtualenv in build/ without the others, and try it
	rm -rf dist build/tree build/installed
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir build/tree --wheel .
	cmp dist/*.whl build/tree/*.whl
	for folder in doors effects lab spark; do \
		$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist --wheel services/oncelog_$$folder || exit 1; \
	done
	$(BIN)/python -m tests.suite.distributions
	@ls -l dist

lock: $(STAMP) ## generate requirements.lock from each pyproject.toml, and the images' requirements from it
	$(BIN)/python -m tests.suite.requirements all | $(COMPILE) - --output-file requirements.lock
	$(BIN)/python -m tests.suite.requirements services | $(COMPILE) - --constraint requirements.lock --output-file docker/requirements.txt
	printf '%s\n' hatchling setuptools | $(COMPILE) - --constraint requirements.lock --output-file docker/requirements-build.txt
	$(BIN)/python -m tests.suite.requirements pipeline | $(COMPILE) - --constraint requirements.lock --output-file docker/requirements-pipeline.txt

clean: ## delete everything that was built, downloaded and cached here
	rm -rf .venv .cache build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find services tests -name __pycache__ -type d -prune -exec rm -rf {} +
