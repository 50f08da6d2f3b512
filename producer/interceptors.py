"""The interceptor interface of the producer: ``from headrace.producer.interceptors import ProducerInterceptor``."""

from .plugins.interceptors import ProducerInterceptor

__all__ = ["ProducerInterceptor"]
