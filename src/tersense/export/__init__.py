"""From a trained camera to the things that hardware is made of.

`base` writes an export: artifacts of one kind (`verilog`, `c`, `dmd`, `matrix`, `onnx`,
`web`), test vectors and a manifest. `microcode` is the program of the Verilog encoder; sources lie
in `rtl/`, `firmware/` and `web/`.
"""

from tersense.export.base import KINDS, export

__all__ = ["KINDS", "export"]
