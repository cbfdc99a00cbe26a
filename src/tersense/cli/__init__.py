"""The command line: `program` puts the commands together, one module has each group of them.

What imports torch is imported inside the commands, so that --help answers at once.
"""

from tersense.cli.program import app, main

__all__ = ["app", "main"]
