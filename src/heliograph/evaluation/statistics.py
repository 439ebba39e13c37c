"""Statistics of repeated measurements, in the form that the papers use.

In:    measurements, in chronological order.
Out:   which of them are kept, and mean, standard deviation, maximum, minimum and standard error.
State: none.
Not here: measuring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import fmean, quantiles, stdev
from typing import Any

FENCE = 1.5  # times the interquartile range, beyond the quartiles: Tukey's rule. The papers do not name their rule
KEPT_MAX = 100  # of 120, as in [brokers] §9


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of many measurements; milliseconds if they are times."""

    count: int
    mean: float
    sd: float
    max: float
    min: float
    se: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, rounded for people."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


def summary(values: Sequence[float]) -> Summary:
    """Statistics of all values; at least one."""
    sd = stdev(values) if len(values) > 1 else 0.0
    return Summary(len(values), fmean(values), sd, max(values), min(values), sd / sqrt(len(values)))


def kept(values: Sequence[float], most: int = KEPT_MAX) -> list[int]:
    """The indexes of the values that are not outliers, in order; of these only the first ones."""
    if len(values) < 4:
        return list(range(len(values)))[:most]
    low, _, high = quantiles(values, n=4, method="inclusive")
    reach = FENCE * (high - low)
    return [place for place, value in enumerate(values) if low - reach <= value <= high + reach][:most]
