"""What a camera read out: measurements, their readout, and the files that keep them.

`measurements` holds the values of one image, `counts` says how many each window took, `readout`
models noise and few bits, `tsm` is the file, `tables` reads what a real camera measured, `rice` is
the code of a sensor's stream, `exposures` plans what a mirror device shows, and `manifest` is the
page that goes with every export.
"""

from tersense.measurements.counts import counts_by_importance, proportional_counts
from tersense.measurements.measurements import MeasuredValues, Measurements
from tersense.measurements.readout import Readout
from tersense.measurements.tables import read_measured
from tersense.measurements.tsm import Header

__all__ = [
    "Header",
    "MeasuredValues",
    "Measurements",
    "Readout",
    "counts_by_importance",
    "proportional_counts",
    "read_measured",
]
