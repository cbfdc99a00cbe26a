"""The camera in other people's frameworks: `interop.deepinv`, `interop.scipy`.

Each needs its extra, and is imported by name.
"""

__all__ = ["deepinv", "scipy"]
