"""This project's producer for asyncio."""

from __future__ import annotations

from typing import Any, ClassVar

from .aiokafka import Aiokafka
from .client import Unavailable


class HeadraceAsync(Aiokafka):
    """`headrace.producer.AsyncKafkaProducer`, whose programs are those of aiokafka, with its hot modules compiled."""

    share = 1.0
    environment: ClassVar[dict[str, str]] = {"HEADRACE_PURE": "0"}

    def start(self) -> None:
        from headrace.network import _build
        from headrace.producer import AsyncKafkaProducer

        if not all(_build.compiled_modules().values()):
            raise Unavailable("the hot modules are not compiled; run `make compile`")
        self.start_with(AsyncKafkaProducer)

    def configuration(self) -> dict[str, Any]:
        return {key.replace(".", "_"): value for key, value in self.shape.config.items()}
