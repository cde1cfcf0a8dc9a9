"""A loader that is not ours, as the doctor runs it: what is taken away, and what making a batch took."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from kinograph._errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True)
class Trial:
    """How a loader runs: from which batch on, over how many of them again and again, and with what taken away."""

    first: int = 0
    batches: int | None = None
    ready: Literal["items", "batches"] | None = None
    num_workers: int | None = None
    pin_memory: bool | None = None
    is_half: bool = False


class Made(NamedTuple):
    """What making one batch took, in the process that made it."""

    #: Seconds in which ``__getitem__`` waited: for storage, for a lock, or in a sleep.
    blocked_s: float
    #: Seconds in which it computed, or waited for a core.
    computing_s: float
    collate_s: float
    #: CPU seconds of the process since its last batch.
    cpu_s: float
    read_bytes: int
    process: int


class Examined(Protocol):
    """A loader that the doctor can run."""

    num_workers: int

    @property
    def samples(self) -> int | None:
        """Samples per batch, if known."""

    @property
    def drawn(self) -> int | None:
        """How many different batches there are, if known."""

    def setting(self) -> dict[str, Any]:
        """Describe the loader."""

    def batches(self, trial: Trial) -> Generator[tuple[Any, Made | None], None, None]:
        """Run without end; closing the iterator ends what it has started."""


def to_subject(loader: Iterable[Any]) -> Examined:
    """Take a ``DataLoader`` apart where that is possible; anything else is only iterated."""
    # Only who has imported torch has a DataLoader.
    data = sys.modules.get("torch.utils.data")
    if data is not None and isinstance(loader, data.DataLoader):
        if type(loader).__iter__ is data.DataLoader.__iter__:
            from kinograph._data_loader import DataLoaderSubject  # noqa: PLC0415 (needs torch)

            return DataLoaderSubject(loader)
        return _Batches(loader)
    if isinstance(loader, str | bytes | Mapping) or not hasattr(loader, "__iter__"):
        raise InvalidArgumentError(
            f"loader is a {type(loader).__name__}; give a torch DataLoader, another iterable of batches, or a dataset of Kinograph"
        )
    if isinstance(loader, Iterator):
        raise InvalidArgumentError(
            f"loader is a {type(loader).__name__}, which can be iterated once, and the doctor runs a loader several times; give what "
            "it iterates over"
        )
    return _Batches(loader)


class _Batches:
    """Any iterable of batches."""

    num_workers = 0

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader
        self.samples: int | None = None
        self.drawn: int | None = None

    def setting(self) -> dict[str, Any]:
        """Describe the loader."""
        return {
            "loader": type(self._loader).__name__,
            "kind": "batches",
            "batch": self.samples,
            "epoch_batches": None,
            "num_workers": 0,
            "prefetch_factor": None,
            "pin_memory": False,
            "persistent_workers": False,
        }

    def batches(self, _trial: Trial) -> Generator[tuple[Any, Made | None], None, None]:
        """Iterate over the loader, again and again."""
        while True:
            batch = None
            for batch in self._loader:
                yield batch, None
            if batch is None:
                raise InvalidArgumentError("the loader has no batches")
