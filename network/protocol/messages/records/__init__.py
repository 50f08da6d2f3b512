"""Messages with or about records."""

from . import delete_records, fetch, init_producer_id, list_offsets, offset_for_leader_epoch, produce

__all__ = ["delete_records", "fetch", "init_producer_id", "list_offsets", "offset_for_leader_epoch", "produce"]
