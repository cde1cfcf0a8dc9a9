"""Batches as jax arrays.

    loader = kinograph.jax.Loader("lift.kino", seq_length=10, batch_size=16, seed=7)
    for batch in loader:
        loss, gradients = value_and_grad(weights, batch)

    batches on the CPU     shared through DLPack, without a copy
    device=, a device            sent by a thread, two batches ahead of the training loop
    device=, a sharding          the same; each process has its rank's part of the global array

>>> import kinograph.jax
>>> loader = kinograph.jax.Loader(ds, windows={"obs/joints": range(10)}, batch_size=16, seed=7)
>>> batch = next(iter(loader))
>>> batch["obs/joints"].shape, batch["obs/joints_is_pad"].dtype
((16, 10, 7), dtype('bool'))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kinograph._ahead import Batch, Send
from kinograph._errors import InvalidArgumentError
from kinograph._loader import BaseLoader, to_numpy
from kinograph._loop import Clock
from kinograph._report import Report

try:
    import jax
except ImportError as error:
    raise ImportError(
        "jax is not installed; run `pip install jax`, or use kinograph.numpy.Loader, which needs only NumPy"
    ) from error

__all__ = ["Loader", "Report"]


class Loader(BaseLoader[Any, "jax.Device | jax.sharding.Sharding"]):
    """Batches of jax arrays; each ``for`` is one epoch.

    >>> loader = kinograph.jax.Loader("lift.kino", seq_length=10, keys=["actions", "obs/joints"], batch_size=16)
    >>> len(loader)
    6
    >>> next(iter(loader))["obs/joints"].shape
    (16, 10, 7)

    On the CPU an array shares the loader's memory, which is not reused for as long as you keep the array. As everywhere
    in jax, 64-bit values become 32-bit ones, by a copy, unless ``jax_enable_x64`` is set.

    ``rank`` and ``world_size`` default to jax's processes. ``device`` is a ``jax.Device``, or a sharding whose first axis is the batch.
    """

    def _to_device(
        self, device: jax.Device | jax.sharding.Sharding | None
    ) -> jax.Device | jax.sharding.Sharding | None:
        if not (device is None or isinstance(device, jax.Device | jax.sharding.Sharding)):
            raise InvalidArgumentError(
                f"device is {device!r}; give one of jax.devices(), such as {jax.devices()[0]!r}, or a jax.sharding.Sharding"
            )
        return device

    def _known_ranks(self) -> tuple[int, int]:
        return jax.process_index(), jax.process_count()

    @property
    def device(self) -> jax.Device | jax.sharding.Sharding:
        """Where the arrays are."""
        return _cpu() if self._device is None else self._device

    def __getstate__(self) -> dict[str, Any]:
        if self._device is not None:
            # A device belongs to a process.
            raise InvalidArgumentError(
                "a loader with a device cannot be pickled; make it where it is used"
            )
        return super().__getstate__()

    def _to_send(self) -> Send | None:
        return None if self._device is None else _Sender(self._device)

    @staticmethod
    def _to_host(dtype: str, shape: Sequence[int], data: Any) -> Any:  # noqa: ANN401 (bytes or texts)
        return _to_numpy(dtype, shape, data)

    def _from_host(self, array: Any) -> Any:  # noqa: ANN401 (an array, or texts)
        return _to_array(array)


class _Sender:
    """Sends batches to a device, or to those of a sharding; jax keeps the memory until they are there.

    What is timed is what it takes to ask for the copies: jax does not say when they are done.
    """

    clock: Clock | None = None

    def __init__(self, device: jax.Device | jax.sharding.Sharding) -> None:
        self._device = device

    def __call__(self, batch: Batch) -> Callable[[], Batch]:
        sent = {key: self._send(array) for key, array in batch.items()}
        # What jax computes with an array waits for its copy by itself.
        return lambda: sent

    def _send(self, array: Any) -> Any:  # noqa: ANN401 (an array, or texts)
        if not isinstance(array, np.ndarray):
            return array
        if isinstance(self._device, jax.sharding.Sharding):
            return jax.make_array_from_process_local_data(self._device, array)
        return jax.device_put(array, self._device)


def _to_array(array: Any) -> Any:  # noqa: ANN401 (an array, or texts)
    """Make a jax array of one in host memory; texts stay what they are."""
    if not isinstance(array, np.ndarray):
        return array
    if array.dtype == jax.numpy.bfloat16:
        # Which numpy's side of DLPack does not know.
        return jax.device_put(array, _cpu())
    return jax.dlpack.from_dlpack(array)


def _to_numpy(dtype: str, shape: Sequence[int], data: Any) -> Any:  # noqa: ANN401 (an array, or texts)
    if dtype == "bfloat16":
        return to_numpy("int16", shape, data).view(jax.numpy.bfloat16)
    return to_numpy(dtype, shape, data)


def _cpu() -> jax.Device:
    return jax.local_devices(backend="cpu")[0]
