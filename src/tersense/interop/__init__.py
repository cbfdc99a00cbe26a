"""The camera in other people's frameworks: `interop.deepinv`, `interop.scipy`."""
