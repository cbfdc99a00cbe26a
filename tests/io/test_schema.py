"""One validator for configurations, headers and manifests."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from tersense.errors import TersenseError
from tersense.io.schema import above, at_least, at_most, below, build, describe_fields, validate


@dataclass(frozen=True)
class Sample:
    """A sample.

    Args:
        rate: Of something, which
            takes two lines to say.
        count: How many.
        kind: Which.
        sizes: Of all.
    """

    rate: Annotated[float, above(0), at_most(1)]
    count: Annotated[int, at_least(1), below(10)] = 3
    kind: Literal["soft", "hard"] = "soft"
    sizes: tuple[Annotated[int, at_least(1)], ...] = (4, 5)


def test_good_values_are_taken_and_integers_serve_as_numbers():
    assert build("sample", Sample, {"rate": 1, "sizes": [7]}) == Sample(1.0, sizes=(7,))
    assert type(build("sample", Sample, {"rate": 1}).rate) is float


@pytest.mark.parametrize(("values", "said"), [
    ({}, r"\[sample\] must have rate"),
    ({"rate": 0}, "sample.rate must be above 0 and at most 1, got 0.0"),
    ({"rate": 1.5}, "sample.rate must be above 0 and at most 1, got 1.5"),
    ({"rate": float("inf")}, "sample.rate must be finite, got inf"),
    ({"rate": float("nan")}, "sample.rate must be finite, got nan"),
    ({"rate": 10**400}, "sample.rate must be finite"),
    ({"rate": "1"}, "sample.rate must be a number, got '1'"),
    ({"rate": True}, "sample.rate must be a number, got True"),
    ({"rate": 1, "count": 10}, "sample.count must be at least 1 and below 10, got 10"),
    ({"rate": 1, "count": 2.0}, "sample.count must be an integer, got 2.0"),
    ({"rate": 1, "kind": "firm"}, "sample.kind must be soft or hard, got 'firm'"),
    ({"rate": 1, "kind": []}, r"sample.kind must be soft or hard, got \[\]"),
    ({"rate": 1, "sizes": []}, r"sample.sizes must be a list, got \[\]"),
    ({"rate": 1, "sizes": [1, 0]}, "sample.sizes must be at least 1, got 0"),
    ({"rate": 1, "cuont": 2}, "unknown setting in .*: cuont; did you mean count?"),
    ([1], r"\[sample\] must be a table"),
])  # fmt: skip
def test_bad_values_are_refused_by_name(values, said):
    with pytest.raises(TersenseError, match=said):
        build("sample", Sample, values)


def test_what_was_built_directly_is_checked_alike():
    validate("sample", Sample(0.5))
    with pytest.raises(TersenseError, match=r"sample\.count must be at least 1"):
        validate("sample", Sample(0.5, 0))


def test_fields_describe_themselves():
    rows = list(describe_fields(Sample))
    assert rows[0] == ("rate", "number, above 0 and at most 1", "",
                       "Of something, which takes two lines to say.")  # fmt: skip
    assert rows[1] == ("count", "integer, at least 1 and below 10", "3", "How many.")
    assert rows[2] == ("kind", '"soft" | "hard"', '"soft"', "Which.")
    assert rows[3] == ("sizes", "list of integer, at least 1", "[4, 5]", "Of all.")
