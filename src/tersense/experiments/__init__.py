"""The tables of the paper, ours beside the published figures; plots; benchmarks (`bench`).

`tables` says what an experiment is, `runner` runs it, `report` and `plots` (extra `plot`) show it.
"""

from tersense.experiments.runner import run_table
from tersense.experiments.tables import TABLES, Experiment, Options

__all__ = ["TABLES", "Experiment", "Options", "run_table"]
