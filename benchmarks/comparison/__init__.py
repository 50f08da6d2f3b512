"""Producers compared with each other, shape of work by shape of work; `benchmarks/bench.py` is the command.

- `shapes`: the rows of the table, one declaration each. `workload` makes their values, keys and headers.
- `clients`: one adapter per producer. Each measurement runs in its own process, whose entry is `process`.
- `brokers`: one adapter per broker. Every run has a fresh topic, which is deleted after the run.
- `runner`: interleaved rounds. `results`: medians, ratios, tables, JSON, and the check against stored ratios.
"""
