"""Distribution functions in pure Python: what intervals and tests need, to about 1e-10.

The regularised incomplete beta function by its continued fraction (Lentz's method, as in
*Numerical Recipes*, 6.4); Student's t and the binomial follow from it; quantiles by bisection,
which is slow and cannot fail. The incomplete gamma function by its series, and beyond its mean by
its continued fraction (6.2); the chi-square distribution follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

__all__ = ["beta_cdf", "chi_square_sf", "normal_sf", "student_cdf", "student_quantile"]

_TINY: Final = 1e-300
_STEPS_MAX: Final = 10_000
_BISECTIONS: Final = 200


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b); a and b above 0."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS_MAX):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / _away(1 + even * d)
        c = _away(1 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / _away(1 + odd * d)
        c = _away(1 + odd / c)
        value *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return value


def _away(value: float) -> float:
    """`value`, kept away from 0."""
    return value if abs(value) > _TINY else _TINY


def _bisect(function: Callable[[float], float], goal: float, low: float, high: float) -> float:
    """Where a rising function reaches `goal` between `low` and `high`."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if function(middle) < goal:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_cdf(t: float, df: float) -> float:
    """P(T <= t) for Student's t with `df` degrees of freedom."""
    tail = beta_cdf(df / (df + t * t), df / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def student_quantile(p: float, df: float) -> float:
    """The t at which `student_cdf` is `p`."""
    return _bisect(lambda t: student_cdf(t, df), p, -1e9, 1e9)


def normal_sf(z: float) -> float:
    """P(Z > z) for the standard normal."""
    return math.erfc(z / math.sqrt(2)) / 2


def chi_square_sf(x: float, df: int) -> float:
    """P(X > x) for the chi-square distribution with `df` degrees of freedom."""
    a, x = df / 2, x / 2
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, _STEPS_MAX):
            term *= x / (a + n)
            total += term
            if term < total * 1e-16:
                break
        return max(0.0, 1.0 - front * total)
    b = x + 1 - a
    c, d = 1 / _TINY, 1 / b
    value = d
    for n in range(1, _STEPS_MAX):
        part = -n * (n - a)
        b += 2
        d = 1 / _away(part * d + b)
        c = _away(b + part / c)
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * value
