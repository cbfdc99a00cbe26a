"""Learn the measurement matrix and the reconstructor together (Algorithm 1).

`run` is one training run: `config` its settings, `data` its crops (`packing`, `crops`), `state`
network (`network`, `losses`) and optimizer (`optim`), `loop` the steps (`cuda_graph`, `stopping`),
`run_folder` and `checkpoint` what it leaves.
"""

from tersense.training.config import Config, build_config, read_config
from tersense.training.run import train

__all__ = ["Config", "build_config", "read_config", "train"]
