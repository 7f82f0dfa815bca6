"""Student's t distribution, by the incomplete beta function."""

import math

TINY = 1e-300
CONVERGED = 1e-15
MOST_TERMS = 10_000


def t_probability(t: float, degrees: float) -> float:
    """P(T ≤ t) for the given degrees of freedom; infinite ones give the normal distribution."""
    if math.isinf(t):
        return float(t > 0)
    if math.isinf(degrees):
        return 0.5 * math.erfc(-t / math.sqrt(2))
    # Computed from the center or from the tail, whichever is small, so that small numbers stay precise.
    if t * t < degrees:
        center = 0.5 * incomplete_beta(0.5, degrees / 2, t * t / (degrees + t * t))
        return 0.5 + math.copysign(center, t)
    tail = 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))
    return 1 - tail if t > 0 else tail


def t_quantile(probability: float, degrees: float) -> float:
    """The t with P(T ≤ t) = probability, by bisection."""
    low, high = -1.0, 1.0
    while t_probability(low, degrees) > probability:
        low *= 2
    while t_probability(high, degrees) < probability:
        high *= 2
    while high - low > 1e-13 * max(1.0, abs(low)):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_probability(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function I_x(a, b), by its continued fraction.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.8, summed by Lentz's method; it converges
    fast below the mean, and I_x(a, b) = 1 - I_{1-x}(b, a) brings the rest there.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * continued_fraction(a, b, x))


def continued_fraction(a: float, b: float, x: float) -> float:
    value, numerator, denominator = 1.0, 1.0, 0.0
    for term in range(1, MOST_TERMS):
        coefficient = beta_coefficient(term, a, b, x)
        denominator = 1 / nonzero(1 + coefficient * denominator)
        numerator = nonzero(1 + coefficient / numerator)
        step = numerator * denominator
        value *= step
        if abs(step - 1) < CONVERGED:
            break
    return value


def beta_coefficient(term: int, a: float, b: float, x: float) -> float:
    """The coefficient d of a term: 1 + d_1/(1 + d_2/(1 + …))."""
    m = term // 2
    if term % 2 == 0:
        return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
    return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))


def nonzero(value: float) -> float:
    return value if abs(value) > TINY else TINY
