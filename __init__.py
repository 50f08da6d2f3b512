"""This directory is the source root of the package ``headrace``; the file is not installed, it only tells tools so."""
