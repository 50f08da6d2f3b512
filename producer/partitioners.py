"""The partitioner interface and the built-in ones: ``from headrace.producer.partitioners import Partitioner``."""

from .plugins.partitioners import Murmur3Partitioner, Partitioner, PartitionerCluster, RoundRobinPartitioner

__all__ = ["Murmur3Partitioner", "Partitioner", "PartitionerCluster", "RoundRobinPartitioner"]
