"""`python -m miniml`: the demo and what shows the state of things."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
