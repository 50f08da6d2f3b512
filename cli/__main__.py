"""`python -m headrace.cli`: the terminal command, if it isn't on the PATH."""

from __future__ import annotations

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
