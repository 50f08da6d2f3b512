"""Handlers for access control lists (KIP-140)."""

from . import create_acls, delete_acls, describe_acls

__all__ = ["create_acls", "delete_acls", "describe_acls"]
