"""Answers about the configurations of topics, brokers and groups."""

from . import alter_configs, describe_configs, incremental_alter_configs

__all__ = ["alter_configs", "describe_configs", "incremental_alter_configs"]
