"""The command ``xpusim``; ``python -m simulator`` is the same."""

import sys

from simulator.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
