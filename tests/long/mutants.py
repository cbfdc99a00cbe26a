"""Change the code in every small way there is, and see whether a test notices (mutmut)."""

from _pytest.nodes import Node
from mutmut.__main__ import cli

# mutmut 3.8 asks tests for a name by which pytest 9 no longer knows them.
if not hasattr(Node, "_nodeid"):
    Node._nodeid = property(lambda node: node.nodeid)

if __name__ == "__main__":
    cli()
