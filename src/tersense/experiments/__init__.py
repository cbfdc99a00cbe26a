"""The tables of the paper, ours beside the published figures; plots; benchmarks (`bench`).

`tables` says what an experiment is, `matrices` which Φ it has, `runner` runs it, `report` and
`plots` (extra `plot`) show it; `claims` holds the paper's words against the `results` on disk.
"""

from tersense.experiments.runner import run_table
from tersense.experiments.tables import TABLES, Experiment, Options

__all__ = ["TABLES", "Experiment", "Options", "run_table"]
