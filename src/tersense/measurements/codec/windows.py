"""Code the measurements of windows: each predicted from the rows before it, at a learned scale.

Windows are coded side by side, a thousand at a time, row after row: all that a prediction needs is
known by then, and a row of neighboring windows is computed at once. How large the errors of a
window are is learned from those of its rows so far.
"""

from typing import Any

import numpy as np

from tersense.measurements.codec.prediction import COEFFICIENT, FRACTION
from tersense.measurements.codec.tables import (
    PHASES,
    SCALE_FRACTION,
    choose_table,
    put_number,
    take_number,
)
from tersense.sensing.loops import compiled

GROUP = 1023  # windows; their errors stay in the cache, and the three of a color together
LARGEST = 2**33  # of a code, either way: a difference of 32-bit numbers
_LARGEST_ERROR = 2**31 - 1  # that others are predicted from
_SHARE = 12  # binary places of a window's scale, relative to what is expected of a row
_FIRST_SHARE = 2500  # 0.6
_LARGEST_SHARE = 1 << 32  # so that a product with a deviation fits 64 bits
_MEMORY = 14  # rows, about, over which it is learned


@compiled
def code_group(
    state: Any, content: Any, encoding: bool, codes: Any, expected: Any, counts: Any,
    coefficients: Any, deviations: Any, tables: Any,
) -> bool:  # fmt: skip
    """Encode or decode the first codes of each window; tell whether all were small enough.

    Args:
        state: Of the range coder.
        content: The bytes that it writes or reads.
        encoding: Whether it writes.
        codes: (m, n) int64, read or written, of at most `GROUP` windows.
        expected: (m, n) int64, what they would be in an image without content, with 4 places.
        counts: (n,) int64, how many of its codes each window has; none larger than the one before.
        coefficients: Of the `Prediction`.
        deviations: Of the `Prediction`.
        tables: All of them.
    """
    rows, active = codes.shape
    fits = True
    errors = np.zeros((rows, active), np.int32)
    shares = np.full(active, _FIRST_SHARE, np.int64)
    for j in range(rows):
        while active and counts[active - 1] <= j:
            active -= 1
        if not active:
            break
        predicted = predict_row(coefficients[j], errors, expected[j], j, active)
        fits &= _code_row(state, content, encoding, codes[j, :active], predicted, shares,
                          errors[j], deviations[j], j, tables)  # fmt: skip
    return fits


@compiled
def predict_row(coefficients: Any, errors: Any, expected: Any, row: int, active: int) -> Any:
    """Return what is expected of the first `active` windows and Σ L_ji·e_i, with their places."""
    total = np.full(active, 1 << (COEFFICIENT - 1), np.int64)
    for i in range(row):
        factor, of_row = np.int64(coefficients[i]), errors[i]
        for w in range(active):
            total[w] += factor * np.int64(of_row[w])
    largest = np.int64(LARGEST << FRACTION)  # whatever the sum is, its code can be written
    for w in range(active):
        total[w] = min(max((total[w] >> COEFFICIENT) + expected[w], -largest), largest)
    return total


@compiled
def _code_row(
    state: Any, content: Any, encoding: bool, codes: Any, predicted: Any, shares: Any, errors: Any,
    deviation: int, row: int, tables: Any,
) -> bool:  # fmt: skip
    """Code one row of a group and learn from it."""
    fits, slowness = True, min(row + 2, _MEMORY)
    for w in range(codes.size):
        table, beyond = choose_table(
            (shares[w] * deviation) >> (_SHARE + FRACTION - SCALE_FRACTION)
        )
        # The nearest quarter of a code; errors that are far larger need not know it.
        rounded = predicted[w] + (1 << (FRACTION - 3))
        base, phase = rounded >> FRACTION, (rounded >> (FRACTION - 2)) & (PHASES - 1)
        if beyond:
            phase, base = 0, base - (1 << (beyond - 1))
        if encoding:
            put_number(state, content, np.int64(codes[w]) - base, tables[table + phase], beyond)
        else:
            code = base + take_number(state, content, tables[table + phase], beyond)
            fits &= -LARGEST <= code <= LARGEST
            codes[w] = min(max(code, -LARGEST), LARGEST)
        error = (np.int64(codes[w]) << FRACTION) - predicted[w]
        errors[w] = min(max(error, -_LARGEST_ERROR), _LARGEST_ERROR)
        share = min((abs(np.int64(errors[w])) << _SHARE) // deviation, _LARGEST_SHARE)
        shares[w] += (share - shares[w]) // slowness
    return fits
