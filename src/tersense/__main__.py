"""Run the command line: `tersense` or `python -m tersense`."""

import sys


def run() -> None:
    """Run a command and leave with its exit code."""
    from tersense.cli import main

    sys.exit(main())


if __name__ == "__main__":
    run()
