# Everything works in a clean clone: `make demo`, `make test` and `make check` create .venv and install what they need.
# All paths are relative, so that the clone may be in a folder of any name.

PYTHON_IN_VENV := .venv/bin/python
PIP := $(PYTHON_IN_VENV) -m pip install --quiet --disable-pip-version-check
PYTEST := $(PYTHON_IN_VENV) -m pytest
HOT := $(shell find network registry producer broker cli -name '*_cy.py' -o -name '*_cy.pxd')
# The build requirements are in pyproject.toml, quoted and separated by commas.
comma := ,
BUILD_NEEDS = $(subst $(comma), ,$(shell sed -n 's/^requires = \[\(.*\)\]/\1/p' pyproject.toml))
# Each of its tests starts Spark several times: make storm runs them.
KILLED_DRIVERS := test_spark_exactly_once_drivers.py
# The tests that also run with the interpreted modules, but for those whose subject is never compiled or is in another
# process. PYTEST_ARGS apply to both runs.
PURE_TESTS := tests/unit tests/property tests/integration
# Three workers on two cores, because many tests wait for processes and timeouts. In the order of the folders, in which the
# unit tests, which are short, come last: by default xdist ends with the files that have few tests, which are those of
# Spark. xdist 3.8 hangs at the end of a run in which it replaced a crashed worker (its issue 1323): end the run instead.
XDIST := -n 3 --dist loadgroup --no-loadscope-reorder --max-worker-restart=0
BENCH_ARGS ?=
# What `make bench` compares: names separated by commas, see `benchmarks/bench.py --help`. Without CLIENTS, Java's client
# is measured if Java is found; only CLIENTS=java and BROKER=apache-kafka need it.
SHAPES ?=
CLIENTS ?=
BROKER ?=
ROUNDS ?=
# The seeds of `make storm`, FIRST:END without END. A seed takes 10 to 20 s: one storm on a producer, three on clusters.
STORM_SEEDS ?= 0:20

# Sets the Java for Spark and Apache Kafka in the commands that follow it.
FIND_JAVA = home="$$(sh tools/find-java)" && export JAVA_HOME="$$home" PATH="$$home/bin:$$PATH"

BENCH = @$(if $(findstring java,$(CLIENTS))$(findstring apache,$(BROKER)),$(FIND_JAVA) && ,$(FIND_JAVA) || true; )$(PYTHON_IN_VENV) \
  benchmarks/bench.py $(SHAPES:%=--shapes %) $(CLIENTS:%=--clients %) $(BROKER:%=--broker %) $(ROUNDS:%=--rounds %)

.PHONY: help demo test pythons wheels storm check lint types floors dead-code prose docs-check bench bench-check bench-broker bench-spark \
  bench-micro-batches bench-scale compile docs site clean distclean

help:
	@echo "make demo          real data: Spark -> KafkaProducer -> broker -> confluent-kafka, compared record by record"
	@echo "make test          all tests with the compiled modules, most of them with the interpreted ones, too"
	@echo "make pythons       the producer's tests on every Python found (PYTHONS='python3.13 /path/to/python' for others)"
	@echo "make wheels        wheels for every Python found, in dist/, each tried in an empty environment (PYTHONS=...)"
	@echo "make storm         several minutes of random faults, power cuts, restarts and connections (STORM_SEEDS=20:40 for other seeds)"
	@echo "make check         lint, format, types, layers of the packages, dead code, wording, generated pages"
	@echo "make prose         spelling and wording of docstrings, comments, messages and pages"
	@echo "make bench         compare the producer with confluent-kafka (SHAPES=1kb,headers ROUNDS=5 CLIENTS=... BROKER=...)"
	@echo "make bench-check   compare the ratios of make bench with the stored ones"
	@echo "make bench-broker  compare the embedded broker with Apache Kafka (needs Java and Maven)"
	@echo "make bench-spark   compare this Spark sink with confluent-kafka and Spark's own"
	@echo "make bench-micro-batches  compare exactly once with at least once in Spark's streaming"
	@echo "make bench-scale   1,000 brokers and 200,000 partitions by simulation, 10,000 partitions for real"
	@echo "make compile       compile the hot modules (*_cy.py) in place"
	@echo "make docs          write the generated pages of docs/"
	@echo "make site          build the documentation site in build/site"
	@echo "make clean         remove build products; make distclean removes .venv, too"

demo: build/compiled
	@$(FIND_JAVA) && $(PYTHON_IN_VENV) examples/demo.py

test: build/compiled
	@$(FIND_JAVA) || echo "make test: the tests that need Java are skipped"; \
	set -ex; \
	HEADRACE_PURE=1 $(PYTEST) $(XDIST) $(PYTEST_ARGS) --ignore-glob='*/integration/spark/*' --ignore-glob='*/integration/site/*' \
	  --ignore-glob='*/integration/benchmarks/*' --ignore-glob='*/integration/examples/*' \
	  --ignore-glob='*/integration/cli/*' --ignore-glob='*/integration/broker/console/*' $(PURE_TESTS); \
	$(PYTEST) $(XDIST) --ignore-glob='*/$(KILLED_DRIVERS)' $(PYTEST_ARGS)

pythons:
	sh tools/test-pythons

wheels:
	sh tools/make-wheels

storm: build/compiled
	$(PYTHON_IN_VENV) tests/support/producer_storm.py $(STORM_SEEDS)
	$(PYTHON_IN_VENV) tests/support/thread_storm.py $(STORM_SEEDS)
	$(PYTHON_IN_VENV) tests/support/broker_storm.py $(STORM_SEEDS)
	$(PYTHON_IN_VENV) tests/support/bank_transfer.py --seconds 120
	$(PYTHON_IN_VENV) tests/support/bank_transfer.py --seconds 120 --level 1 --kill-brokers
	@$(FIND_JAVA) || { echo "make storm: the storms over Spark need Java"; exit 0; }; \
	  $(PYTEST) tests/integration/spark/$(KILLED_DRIVERS) && \
	  $(PYTHON_IN_VENV) -W ignore tests/support/spark_storm.py --kills 12 && \
	  $(PYTHON_IN_VENV) -W ignore tests/support/spark_storm.py --kills 12 --sink foreachBatch --level 1
	$(PYTHON_IN_VENV) tests/support/connection_storm.py --connections 500 --rounds 5

check: lint types floors dead-code prose docs-check

lint: .venv/installed
	$(PYTHON_IN_VENV) -m ruff check .
	$(PYTHON_IN_VENV) -m ruff format --check .

types: .venv/installed build/compiled
	$(PYTHON_IN_VENV) -m basedpyright
	$(PYTHON_IN_VENV) -m basedpyright --project tests/types

floors: .venv/installed
	.venv/bin/lint-imports

dead-code: .venv/installed
	$(PYTHON_IN_VENV) tools/dead_code.py

# Spelling, and the wording rules of this project (tools/prose_rules.txt).
prose: .venv/installed
	@failed=0; \
	.venv/bin/codespell --ignore-words-list pasword,childs,unsecure --skip '*.so,*.c,*/__pycache__' *.md Makefile pyproject.toml setup.py \
	    network registry producer broker cli tests examples benchmarks docs tools || failed=1; \
	$(PYTHON_IN_VENV) tools/prose.py || failed=1; \
	exit $$failed

docs-check: build/compiled
	$(PYTHON_IN_VENV) docs/generate.py --check

docs: build/compiled
	$(PYTHON_IN_VENV) docs/generate.py

site: build/compiled
	NO_MKDOCS_2_WARNING=1 $(PYTHON_IN_VENV) -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: build/compiled
	$(BENCH) $(BENCH_ARGS)

bench-check: build/compiled
	$(BENCH) --check $(BENCH_ARGS)

bench-broker: build/compiled
	@$(FIND_JAVA) || true; $(PYTHON_IN_VENV) benchmarks/broker.py $(BENCH_ARGS)

bench-spark: build/compiled
	@$(FIND_JAVA) && $(PYTHON_IN_VENV) benchmarks/spark_bench.py $(BENCH_ARGS)

bench-micro-batches: build/compiled
	@$(FIND_JAVA) && $(PYTHON_IN_VENV) benchmarks/spark_micro_batches.py $(BENCH_ARGS)

bench-scale: build/compiled
	$(PYTHON_IN_VENV) benchmarks/scale.py $(BENCH_ARGS)

compile: .venv/installed
	@$(PYTHON_IN_VENV) setup.py --quiet build_ext --inplace
# pip writes no bytecode for an editable install; with PYTHONDONTWRITEBYTECODE every start would compile every module
	@$(PYTHON_IN_VENV) -m compileall -q network registry producer broker cli
	@$(PYTHON_IN_VENV) -c "from headrace.network._build import describe; print('headrace:', describe())"
	@mkdir -p build && touch build/compiled

build/compiled: .venv/installed $(HOT)
	@$(MAKE) --no-print-directory compile

# A virtual environment has absolute paths, so a clone that was moved or copied needs a new one.
ifneq ($(shell cat .venv/made-for 2>/dev/null),$(CURDIR))
.PHONY: .venv/made-for
endif
.venv/made-for:
	@sh tools/make-venv

.venv/installed: .venv/made-for pyproject.toml setup.py
	@echo "Installing Headrace and what it needs into .venv (minutes the first time, then seconds)"
	@$(PIP) --upgrade pip $(BUILD_NEEDS)
	@PYTHONWARNINGS=ignore $(PIP) --no-build-isolation --editable '.[spark,test,check]'
	@touch $@

clean:
	rm -rf build dist headrace.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	find network registry producer broker cli -name '*_cy.*.so' -delete
	find network registry producer broker cli pyspark_headrace tests examples benchmarks docs -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .pythons
