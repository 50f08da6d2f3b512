"""Handlers for the configurations of topics, brokers and groups."""

from . import alter_configs, describe_configs, incremental_alter_configs, list_config_resources

__all__ = ["alter_configs", "describe_configs", "incremental_alter_configs", "list_config_resources"]
