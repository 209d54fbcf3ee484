"""`python -m miniml`: the demo, and commands that inspect an installation or a network."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
