"""The metrics in float64, as one would write them on paper."""

import numpy as np

TINY = 2.0**-23


def finite_places(golden, mine):
    with np.errstate(invalid="ignore"):  # signalling NaN
        g, m = golden.astype(np.float64).ravel(), mine.astype(np.float64).ravel()
    return g, m, np.isfinite(g) & np.isfinite(m)


def bad_places(golden, mine):
    g, m, finite = finite_places(golden, mine)
    same = (g == m) | (np.isnan(g) & np.isnan(m))
    return np.flatnonzero(~finite & ~same)


def metrics(golden, mine):
    """Values of the metrics that have one, without those in ULPs."""
    g, m, finite = finite_places(golden, mine)
    g, m = g[finite], m[finite]
    if g.size == 0:
        return {}
    error = np.abs(m - g)
    relative = error / np.maximum(np.abs(g), TINY)
    values = {
        "max_relative_error": relative.max(),
        "mean_relative_error": relative.mean(),
        "max_absolute_error": error.max(),
        "mean_absolute_error": error.mean(),
        "kl_divergence": kl_divergence(g, m),
    }
    norms = np.linalg.norm(g), np.linalg.norm(m)
    if norms[0]:
        values["relative_euclidean_distance"] = np.linalg.norm(m - g) / norms[0]
    elif not norms[1]:
        values["relative_euclidean_distance"] = 0.0
    if norms[0] and norms[1]:
        values["cosine_similarity"] = (g / norms[0]) @ (m / norms[1])
    elif norms == (0, 0):
        values["cosine_similarity"] = 1.0
    return values


def kl_divergence(g, m):
    log_p = g - g.max() - np.log(np.exp(g - g.max()).sum())
    log_q = m - m.max() - np.log(np.exp(m - m.max()).sum())
    return (np.exp(log_p) * (log_p - log_q)).sum()


def all_numbers(dtype):
    """Every finite number of a 16-bit float type in order; +0 and -0 are one."""
    numbers = np.arange(65536, dtype=np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):
        wide = numbers.astype(np.float64)
    return np.unique(wide[np.isfinite(wide)])


def ulp_distances(golden, mine, dtype):
    """Steps through the list of all numbers of a 16-bit type."""
    numbers = all_numbers(dtype)
    g, m, finite = finite_places(golden.astype(dtype), mine.astype(dtype))
    return np.abs(np.searchsorted(numbers, g[finite]) - np.searchsorted(numbers, m[finite]))
