"""Run the command line: `tersense` or `python -m tersense`."""

import os
import sys


def run() -> None:
    """Run a command and leave with its exit code."""
    from tersense.cli.program import main

    code = main()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # Threads of torch's process group may abort a process that is torn down around them.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
