"""Batches as numpy arrays.

>>> import kinograph.numpy
>>> loader = kinograph.numpy.Loader(ds, windows={"actions": range(10)}, batch_size=16, seed=7)
>>> batch = next(iter(loader))
>>> batch["actions"].shape, batch["actions_is_pad"].dtype
((16, 10, 7), dtype('bool'))
"""

from __future__ import annotations

from typing import Any

from kinograph._errors import InvalidArgumentError
from kinograph._loader import BaseLoader
from kinograph._report import Report

__all__ = ["Loader", "Report"]


class Loader(BaseLoader[Any, None]):
    """Batches of numpy arrays; each ``for`` is one epoch.

    >>> loader = kinograph.numpy.Loader("lift.kino", seq_length=10, keys=["actions", "obs/joints"], batch_size=16)
    >>> len(loader)
    6
    >>> sum(1 for batch in loader)
    6

    Arrays share the loader's memory without a copy, and stay valid for as long as you keep them.
    """

    def _to_device(self, device: object) -> None:
        if device is not None:
            raise InvalidArgumentError(
                f"device is {device!r}; numpy arrays stay in memory, use kinograph.torch or kinograph.jax for a GPU"
            )
