"""Hierarchical timing wheels: timers that are set and cancelled in constant time, in great numbers."""
