"""One episode: its streams by name, and its metadata."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kinograph._errors import InvalidArgumentError
from kinograph._stream import Stream
from kinograph._table import BUILT_IN_COLUMNS

if TYPE_CHECKING:
    from kinograph import _core
    from kinograph._dataset import Dataset


class Protected(NamedTuple):
    """A time interval around an event, in seconds from the episode's first frame."""

    event: str
    start_s: float
    end_s: float


class Episode(Mapping[str, Stream]):
    """One episode of a dataset: a mapping from stream names to streams.

    >>> episode = ds[0]
    >>> episode
    Episode('demo_0': 40 frames, 1.95 s at 20 Hz, 4 streams)
    >>> list(episode)
    ['actions', 'obs/joints', 'language', 'obs/agentview_image']
    >>> episode["obs/joints"].dtype
    dtype('float32')
    >>> episode.task, episode.splits
    ('lift the cube', ['train'])
    """

    __slots__ = ("_core", "_dataset")

    def __init__(self, dataset: Dataset, core: _core.Episode) -> None:
        self._dataset = dataset
        self._core = core

    @property
    def id(self) -> str:
        """Its id, unique within the dataset."""
        return self._core.id

    @property
    def index(self) -> int:
        """Its index in the dataset: ``ds[episode.index]`` is this episode."""
        return self._core.row

    @property
    def streams(self) -> list[str]:
        """The names of its streams, in the order in which they are stored."""
        return self._core.streams()

    @property
    def frames(self) -> int:
        """The number of frames of its longest stream."""
        return int(self._column("frames"))

    @property
    def start_ns(self) -> int:
        """The timestamp of its first frame, which is second 0 of the episode."""
        return self._core.start_ns

    @property
    def duration_s(self) -> float:
        """Seconds from the first frame of any stream to the last frame of any stream."""
        return float(self._column("duration_s"))

    @property
    def task(self) -> str | None:
        """The task, usually an instruction in natural language."""
        task: str | None = self._column("task")
        return task

    @property
    def success(self) -> bool | None:
        """Whether the task succeeded; ``None`` if not recorded."""
        success = self._column("success")
        return None if success is None else bool(success)

    @property
    def splits(self) -> list[str]:
        """The splits it belongs to."""
        return list(self._column("splits"))

    @property
    def labels(self) -> dict[str, Any]:
        """Its values in the columns that users added to the episode table."""
        table = self._dataset.episodes
        names = [name for name in table.columns if name not in BUILT_IN_COLUMNS]
        values = {name: table.values(name)[self.index] for name in names}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def attributes(self) -> dict[str, Any]:
        """Metadata from the source; read from disk on each access."""
        attributes: dict[str, Any] = json.loads(self._core.read_attributes())
        return attributes

    @property
    def protected(self) -> list[Protected]:
        """Time intervals around events, which some streams store exactly; read from disk on each access.

        >>> ds[0].protected
        []
        """
        start = self.start_ns
        parts = self._core.read_protected()
        return [Protected(e, (a - start) / 1e9, (b - start) / 1e9) for e, a, b in parts]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The rules used to detect events when the episode was packed; read from disk on each access."""
        events: list[dict[str, Any]] = json.loads(self._core.read_events())
        return events

    def __getitem__(self, name: str) -> Stream:
        """Open a stream by its name."""
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f"episode `{self.id}` is indexed by the name of a stream, not by {name!r}; index a stream to read frames: episode[name][0]"
            )
        return Stream(self, self._core.stream(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.streams())

    def __len__(self) -> int:
        return len(self._core.streams())

    def __contains__(self, name: object) -> bool:
        return name in self._core.streams()

    # Mappings compare by value, which would read all frames of both episodes.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        rates = rates_text(self._core.rates_hz())
        return f"Episode({self.id!r}: {self.frames} frames, {self.duration_s:.6g} s{rates}, {len(self)} streams)"

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, (self._dataset, self.index)

    def _column(self, name: str) -> Any:  # noqa: ANN401 (the column decides)
        return self._dataset.episodes.values(name)[self.index]


def rates_text(rates_hz: list[float | None]) -> str:
    """Format rates as ' at 20 Hz' or ' at 30 to 500 Hz'; empty if all timestamps are explicit."""
    known = sorted({rate for rate in rates_hz if rate is not None})
    if not known:
        return ""
    if len(known) == 1:
        return f" at {known[0]:g} Hz"
    return f" at {known[0]:g} to {known[-1]:g} Hz"
