"""Statistics and scales as robomimic computes them: merged demonstration by demonstration, in float32.

The statistics of a dataset (``ds.stats``) are exact and cover all episodes; these reproduce robomimic's values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kinograph._arguments import to_word

Array: TypeAlias = npt.NDArray[Any]

# The bound that `min_max` maps actions to, and the smallest range and std that are scaled; robomimic's constants.
_BOUND = 0.999999
_MIN_RANGE = 1e-4
_MIN_STD = 1e-6


def merged_stats(parts: Iterable[Array]) -> dict[str, Any]:
    """Merge the statistics of demonstrations one by one (Chan's algorithm), in float32, as robomimic does."""
    whole: dict[str, Any] = {}
    for part in parts:
        mean = part.mean(axis=0, keepdims=True)
        one = {
            "n": len(part),
            "mean": mean,
            "sqdiff": ((part - mean) ** 2).sum(axis=0, keepdims=True),
        }
        one |= {"min": part.min(axis=0, keepdims=True), "max": part.max(axis=0, keepdims=True)}
        whole = _merge(whole, one) if whole else one
    return whole


def _merge(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    n = a["n"] + b["n"]
    shift = b["mean"] - a["mean"]
    return {
        "n": n,
        "mean": (a["n"] * a["mean"] + b["n"] * b["mean"]) / n,
        "sqdiff": a["sqdiff"] + b["sqdiff"] + shift**2 * (a["n"] * b["n"]) / n,
        "min": np.minimum(a["min"], b["min"]),
        "max": np.maximum(a["max"], b["max"]),
    }


def to_scale(key: str, stats: dict[str, Any], method: str | None) -> dict[str, Array]:
    """Compute ``offset`` and ``scale`` of ``(action - offset) / scale`` for one key."""
    mean = stats["mean"].astype(np.float32)
    if method is None:
        return {"scale": np.ones_like(mean), "offset": np.zeros_like(mean)}
    to_word(f"action_config: normalization of `{key}`", method, ("min_max", "gaussian"))
    if method == "gaussian":
        std = np.sqrt(stats["sqdiff"] / stats["n"]).astype(np.float32)
        return {"scale": np.where(std < _MIN_STD, np.float32(1), std), "offset": mean}
    least, most = stats["min"].astype(np.float32), stats["max"].astype(np.float32)
    is_constant = most - least < _MIN_RANGE
    scale = np.where(is_constant, np.float32(2 * _BOUND), most - least) / (2 * _BOUND)
    # Constant dimensions become zero.
    return {"scale": scale, "offset": np.where(is_constant, least, least + scale * _BOUND)}
