"""Clusters of brokers, in this process (`embedded`) or in one process per broker (`processes`)."""
