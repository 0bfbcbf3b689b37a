"""Intervals and tests on success counts; episodes of two policies are paired by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairedDifference:
    """Difference of two success rates measured on the same seeds (second minus first)."""

    value: float
    """difference of the rates, in [-1, 1]"""
    interval: tuple[float, float]
    """confidence limits of the difference"""
    only_first: int
    """pairs in which only the first policy succeeded"""
    only_second: int
    """pairs in which only the second policy succeeded"""
    p_value: float
    """exact McNemar test of no difference, two-sided"""


def wilson_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson score interval of a success rate (statsmodels ``proportion_confint``).

    Args:
        successes: number of successes, 0 .. trials.
        trials: number of episodes, at least 1.
        confidence: coverage, in (0, 1).

    Returns:
        lower and upper limit, in [0, 1].
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(
            f"{successes} successes of {trials} trials: allowed are 0 <= successes <= trials and trials >= 1"
        )
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(successes, trials, alpha=1 - confidence, method="wilson")
    return max(0.0, float(low)), min(1.0, float(high))


def paired_difference(
    first: Sequence[bool], second: Sequence[bool], confidence: float = CONFIDENCE
) -> PairedDifference:
    """Compare two policies on the same seeds.

    The interval is Newcombe's square-and-add interval for paired proportions (R. G. Newcombe, "Improved
    confidence intervals for the difference between binomial proportions based on paired data", Statistics
    in Medicine 17, 1998, method 10). SciPy and statsmodels have none for pairs, and the paired bootstrap has
    zero width when all pairs agree; this one combines statsmodels' Wilson limits of the two rates with the
    correlation of the pairs. The p-value is statsmodels' exact McNemar test.

    Args:
        first: success per seed of the first policy (base), length N >= 1.
        second: success per seed of the second policy (refined), the same seeds in the same order.
        confidence: coverage of the interval, in (0, 1).
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"{len(first)} and {len(second)} outcomes: both need the same seeds, at least one")
    pairs = list(zip((bool(x) for x in first), (bool(x) for x in second), strict=True))
    both, only_first = pairs.count((True, True)), pairs.count((True, False))
    only_second, neither = pairs.count((False, True)), pairs.count((False, False))
    n = len(pairs)
    rate_1, rate_2 = (both + only_first) / n, (both + only_second) / n
    low_1, high_1 = wilson_interval(both + only_first, n, confidence)
    low_2, high_2 = wilson_interval(both + only_second, n, confidence)
    phi = _pair_correlation(both, only_first, only_second, neither)
    difference = rate_2 - rate_1
    below = _square_and_add(rate_2 - low_2, high_1 - rate_1, phi)
    above = _square_and_add(high_2 - rate_2, rate_1 - low_1, phi)
    interval = (max(-1.0, difference - below), min(1.0, difference + above))
    return PairedDifference(difference, interval, only_first, only_second, mcnemar_p(only_first, only_second))


def mcnemar_p(only_first: int, only_second: int) -> float:
    """Two-sided exact McNemar test (statsmodels ``mcnemar``); 1 when no pair is discordant."""
    from statsmodels.stats.contingency_tables import mcnemar

    return float(mcnemar([[0, only_first], [only_second, 0]], exact=True).pvalue)


def _pair_correlation(both: int, only_first: int, only_second: int, neither: int) -> float:
    """Newcombe's phi: correlation of the pairs, with his continuity correction when it is positive."""
    n = both + only_first + only_second + neither
    margins = (both + only_first) * (only_second + neither) * (both + only_second) * (only_first + neither)
    if margins == 0:
        return 0.0
    product = both * neither - only_first * only_second
    corrected = max(product - n / 2, 0.0) if product > 0 else float(product)
    return corrected / math.sqrt(margins)


def _square_and_add(a: float, b: float, phi: float) -> float:
    return math.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))
