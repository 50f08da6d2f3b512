"""Plugins of a producer: serializers, partitioners, interceptors and metrics reporters."""
