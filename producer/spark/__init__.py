"""Spark DataFrames written through the producer."""
