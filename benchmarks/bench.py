"""This producer compared with others, shape of work by shape of work. `make bench` runs it.

    python benchmarks/bench.py [--shapes NAME,...] [--clients NAME,...] [--broker NAME] [--rounds N] [--json FILE]
    python benchmarks/bench.py --check      # compare the ratios with those stored in expected.json
    python benchmarks/bench.py --store      # replace the stored results of the measured shapes; then run `make docs`

All clients have their defaults, unless the shape says otherwise, and send idempotently with the murmur2 partitioner.
Every measurement runs in its own process. The time begins after one acknowledged record, so it excludes imports,
connecting and the topic's metadata, and ends when every record is acknowledged; the topic's end offsets must agree.
The clients take turns, and the table has medians of the rounds. A ratio compares the first client with each other one:
more is better, also where the row is about latency. CPU is the time of the client's process, all threads included, per
record. MiB is its peak resident memory.

`--check` measures rows whose ratio seems to have fallen a second time, names those that fell again, and exits with 1.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparison.apache_kafka import ApacheKafkaUnavailable, jars_folder, java_command
from comparison.brokers import BROKERS, BrokerUnavailableError, UnknownBrokerError, select_broker
from comparison.clients import CLIENTS, UnknownClientError, select_clients
from comparison.results import ShapeResult, fallen, header, latency_lines, lines, missing_lines, to_store
from comparison.runner import Runner
from comparison.shapes import SHAPES, Shape, ShapeError, select_shapes

EXPECTED = Path(__file__).with_name("expected.json")
DEFAULT_CLIENTS = ("headrace", "confluent-kafka")


def environment(broker: str, rounds: int, scale: float) -> dict[str, Any]:
    """What the measurements depend on beside the code."""
    from importlib import metadata

    versions = {}
    for name in ("headrace", "confluent-kafka", "aiokafka", "kafka-python"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "broker": broker,
        "rounds": rounds,
        "scale": scale,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": versions,
    }


def read_expected() -> dict[str, Any]:
    """The stored ratios: broker -> "base / peer" -> shape. Empty if there are none."""
    return json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}


def store(broker: str, results: Sequence[ShapeResult]) -> None:
    """Replace the stored results of the measured shapes."""
    expected = read_expected()
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    for clients, shapes in to_store(results, today).items():
        expected.setdefault(broker, {}).setdefault(clients, {}).update(shapes)
    EXPECTED.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def check(runner: Runner, expected: dict[str, Any], results: Sequence[ShapeResult]) -> list[str]:
    """The ratios that have fallen, in two measurements."""
    suspects: list[Shape] = [result.shape for result in results if fallen(expected, [result])]
    if not suspects:
        return []
    print(f"\nmeasured again: {', '.join(shape.name for shape in suspects)}\n", flush=True)
    return fallen(expected, [measured_and_printed(runner, shape) for shape in suspects])


def measured_and_printed(runner: Runner, shape: Shape) -> ShapeResult:
    result = runner.measure(shape)
    print("\n".join(lines(result)), flush=True)
    return result


def names(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


def default_clients(*, with_java: bool) -> list[str]:
    """The clients to measure if none are named."""
    if with_java:
        try:
            java_command()
            jars_folder()
        except ApacheKafkaUnavailable as missing:
            print(f"without Java's producer: {missing}", file=sys.stderr)
        else:
            return [*DEFAULT_CLIENTS, "java"]
    return list(DEFAULT_CLIENTS)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shapes",
        type=names,
        default=[],
        help=f"names, separated by commas (default: all): {', '.join(shape.name for shape in SHAPES)}",
    )
    parser.add_argument(
        "--clients",
        type=names,
        help=(
            f"the first one is compared with the others (default: {', '.join(DEFAULT_CLIENTS)}, and java if Java and "
            f"Maven Central are reachable and the ratios are neither checked nor stored): {', '.join(CLIENTS)}"
        ),
    )
    parser.add_argument("--broker", default="embedded", help=f"one of {', '.join(BROKERS)} (default: embedded)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="a factor for the number of records (default: 1)")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="default: build/bench.json")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="compare the ratios with the stored ones")
    what.add_argument("--store", action="store_true", help="store the results")
    return parser


def main(command_line: Sequence[str] | None = None) -> int:
    parser = arguments()
    options = parser.parse_args(command_line)
    try:
        shapes = select_shapes(options.shapes)
        clients = select_clients(
            default_clients(with_java=not (options.check or options.store))
            if options.clients is None
            else options.clients
        )
        broker = select_broker(options.broker)
    except (ShapeError, UnknownClientError, UnknownBrokerError) as unknown:
        parser.error(str(unknown))
    if options.rounds < 1 or options.scale <= 0 or not clients:
        parser.error("--rounds and --scale must be positive, and --clients must name a client")
    if options.scale != 1 and (options.check or options.store):
        parser.error("--check and --store need whole runs: ratios depend on --scale")
    expected = read_expected().get(options.broker, {})
    if options.check and not expected:
        parser.error(f"{EXPECTED.name} has no ratios for the broker {options.broker!r}; run with --store first")
    if options.check:
        stored = {name for clients_shapes in expected.values() for name in clients_shapes}
        shapes = [shape for shape in shapes if shape.name in stored]
        if not shapes:
            parser.error(f"{EXPECTED.name} has none of the shapes {', '.join(options.shapes)}")
    described = environment(options.broker, options.rounds, options.scale)
    print(", ".join(f"{key}: {value}" for key, value in described.items()))
    worse: list[str] = []
    try:
        with broker() as running:
            runner = Runner(running, clients, options.rounds, options.scale)
            base, *peers = clients
            print(header(base, peers), flush=True)
            runner.warm_up(shapes[0])
            results = [measured_and_printed(runner, shape) for shape in shapes]
            if options.check:
                worse = check(runner, expected, results)
    except BrokerUnavailableError as missing:
        print(f"the broker {options.broker!r} is not available: {missing}", file=sys.stderr)
        return 1
    for table in (latency_lines(results), missing_lines(results)):
        if table:
            print("\n" + "\n".join(table))
    measured = {**described, "shapes": {result.shape.name: result.to_json() for result in results}}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    if options.store:
        store(options.broker, results)
    for sentence in worse:
        print(f"fallen: {sentence}")
    if options.check and not worse:
        print("no ratio has fallen by more than the noise")
    return 1 if worse or runner.failures else 0


if __name__ == "__main__":
    sys.exit(main())
