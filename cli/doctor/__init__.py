"""`headrace doctor`: connect step by step, and say which step fails and what to do.

The steps: the configuration, the names of the bootstrap servers, TCP, TLS, ApiVersions, SASL, every broker at the
address that it advertises, and with --topic the partitions, access to the topic, and its settings beside those of the
producer. --write also sends one record to the topic, and measures its latency and the clock skew.

Examples:
  headrace doctor -b broker.example.com:9092
  headrace doctor --command-config producer.properties --topic orders
  headrace doctor --command-config producer.properties --topic orders --write
  headrace doctor -b broker.example.com:9092 --json

The exit code is the lowest one of the steps that failed:
  3 configuration   4 name   5 TCP   6 TLS   7 SASL   8 ApiVersions (it is not Kafka)   9 brokers (advertised listeners)
  10 topic   11 access   12 write
It is 0 if none fails (warnings don't count), 2 for wrong options, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap

from ...network.addresses import Address
from ...network.client.blocking_connection import BlockingConnection
from ...network.protocol.errors import KafkaConfigurationError, KafkaError
from ...network.protocol.messages.topics.metadata import MetadataResponse
from ...network.text import counted
from ...network.topic_names import validate_topic_name
from ...producer.config import ProducerConfig
from ..arguments import add_producer_arguments, producer_keys, servers_text, whole_number
from ..client import add_bootstrap_argument
from ..signals import INTERRUPTED
from .brokers import check_brokers
from .connecting import Connector
from .findings import Finding, Findings, Status, Step
from .topic import TopicCheck
from .writing import write_record

_WIDTH = 116
_INDENT = 23


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_bootstrap_argument(parser)
    parser.add_argument("--topic", metavar="TOPIC", help="also check this topic")
    parser.add_argument("--write", action="store_true", help="also send one small record to the topic")
    add_producer_arguments(parser)
    parser.add_argument(
        "--timeout-ms", type=whole_number(100), default=10_000, metavar="MS", help="for each step (default 10000)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with all findings")


def run(options: argparse.Namespace) -> int:
    """Check everything and report. Returns the exit code."""
    findings = Findings((lambda finding: None) if options.json else _show)
    interrupted = False
    try:
        Examination(options, findings).run()
    except KeyboardInterrupt:
        interrupted = True
    code = INTERRUPTED if interrupted else findings.exit_code
    if options.json:
        content = {
            "exit_code": code,
            "interrupted": interrupted,
            "findings": [finding.as_dict() for finding in findings.all],
        }
        print(json.dumps(content, indent=2))
    else:
        print(_summary(findings, interrupted))
    return code


class Examination:
    """One run of the steps. Each needs those before it."""

    def __init__(self, options: argparse.Namespace, findings: Findings) -> None:
        self._options = options
        self._findings = findings

    def run(self) -> None:
        try:
            config, connector = self._configure()
        except KafkaError as wrong:
            self._findings.fail(Step.CONFIGURATION, self._options.command_config or "options", str(wrong))
            return
        try:
            self._examine(config, connector)
        finally:
            connector.close()

    def _configure(self) -> tuple[ProducerConfig, Connector]:
        options = self._options
        if options.topic is not None:
            validate_topic_name(options.topic)
        elif options.write:
            raise KafkaConfigurationError("--write needs --topic, which names where to send the record")
        config = ProducerConfig.resolve_from(producer_keys(options), {}, {})
        connector = Connector(config, options.timeout_ms)
        text = f"security.protocol={config.security_protocol}"
        if config.sasl_mechanism is not None:
            text += f", sasl.mechanism={config.sasl_mechanism}"
        self._findings.ok(Step.CONFIGURATION, options.command_config or "options", text)
        return config, connector

    def _examine(self, config: ProducerConfig, connector: Connector) -> None:
        findings = self._findings
        reached: dict[Address, tuple[BlockingConnection, MetadataResponse]] = {}
        for address in config.bootstrap_servers:
            connected = connector.connect(address, findings)
            if connected is not None:
                reached[address] = connected
        if not reached:
            findings.skip(Step.BROKERS, servers_text(config), "no bootstrap server could be asked for the brokers")
            return
        connection, metadata = next(iter(reached.values()))
        check_brokers(connector, metadata, list(reached), findings)
        topic = self._options.topic
        if topic is None:
            findings.skip(Step.TOPIC, "-", "--topic names no topic to check")
        else:
            self._check_topic(config, connection, topic)
        for connected, _ in reached.values():
            connected.close()

    def _check_topic(self, config: ProducerConfig, connection: BlockingConnection, topic: str) -> None:
        findings = self._findings
        check = TopicCheck(connection, topic, config, findings)
        is_usable = check.run()
        if not self._options.write:
            findings.skip(Step.WRITE, topic, "without --write nothing is sent")
        elif not is_usable:
            findings.skip(Step.WRITE, topic, "nothing is sent to a topic with a failure above")
        else:
            write_record(config, topic, check.configs.get("message.timestamp.type"), self._options.timeout_ms, findings)


# --- Text ---

_LABELS = {Status.OK: "ok", Status.WARNING: "warn", Status.FAILED: "FAIL", Status.SKIPPED: "-"}


def _show(finding: Finding) -> None:
    head = f"{_LABELS[finding.status]:<5} {finding.step.label:<14} "
    print(_wrapped(f"{finding.target}: {finding.text}", head), flush=True)
    if finding.advice:
        print(_wrapped(finding.advice, " " * (_INDENT - 3) + "-> "), flush=True)


def _wrapped(text: str, head: str) -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(findings: Findings, interrupted: bool) -> str:
    if interrupted:
        print("headrace doctor: interrupted", file=sys.stderr)
    failed, warnings = findings.of(Status.FAILED), findings.of(Status.WARNING)
    if failed:
        first = min(failed, key=lambda each: each.step.exit_code)
        return (
            f"{len(failed)} failed, {counted(len(warnings), 'warning')}; the first step that fails: {first.step.label}"
        )
    return f"no step failed, {counted(len(warnings), 'warning')}"
