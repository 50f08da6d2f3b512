"""The FastAPI program of docs/asyncio.md, with the little that it uses of FastAPI."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import EmbeddedCluster

PAGE = Path(__file__).resolve().parents[3] / "docs" / "asyncio.md"


class Application:
    """What the program uses of `fastapi.FastAPI`."""

    def __init__(self, lifespan: Callable[..., Any]) -> None:
        self.lifespan = lifespan
        self.routes: dict[str, Callable[..., Any]] = {}

    def post(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda function: self.routes.setdefault(path, function)


def program() -> str:
    (block,) = [each for each in PAGE.read_text().split("```python\n")[1:] if "import FastAPI" in each]
    return block.partition("```")[0]


def test_the_fastapi_program_sends_while_its_lifespan_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("fastapi")
    module.FastAPI = Application  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "fastapi", module)
    with EmbeddedCluster(num_partitions=1) as cluster:
        names: dict[str, Any] = {}
        exec(program().replace("localhost:9092", cluster.bootstrap_servers), names)

        async def main() -> list[dict[str, int]]:
            async with names["lifespan"](names["app"]):
                return [await names["place_order"](number) for number in range(2)]

        assert asyncio.run(main()) == [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}]
        assert [record.value for record in cluster.records("orders", 0)] == [b'{"id":0}', b'{"id":1}']
        assert list(names["app"].routes) == ["/orders/{order_id}"]
