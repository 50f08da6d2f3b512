"""`python -m headrace.cli`: the terminal command, for where it isn't on the path."""

from __future__ import annotations

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
