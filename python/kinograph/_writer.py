"""Writing a dataset: episodes in, one new version out."""

from __future__ import annotations

import json
import os
import types
import warnings
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import U64, to_bytes, to_list, to_number, to_text, to_whole
from kinograph._arrays import Times, to_streams
from kinograph._errors import InvalidArgumentError, NotFoundError, StorageError
from kinograph._table import BUILT_IN_COLUMNS

Label: TypeAlias = bool | int | float | str
Mode: TypeAlias = Literal["new", "append", "resume", "overwrite"]
Plan: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | None

SHARD_SIZE = 128 << 20
MEMORY = 512 << 20


class Committed(NamedTuple):
    """What a commit made."""

    version: int
    id: str
    episodes: int


class Writer:
    """Writes episodes into a dataset and makes them visible in one step.

    Used in a ``with`` block it commits at its end; if the block raises, nothing is visible. Without one,
    call :meth:`commit`.

    >>> with kinograph.Writer("pick.kino") as writer:
    ...     for number in range(3):
    ...         streams = {
    ...             "obs/wrist_image": np.zeros((20, 48, 64, 3), np.uint8),
    ...             "obs/joints": np.zeros((20, 7), np.float32),
    ...             "actions": np.zeros((20, 7)),
    ...         }
    ...         writer.add_episode(streams, rate_hz=20.0, task="pick the apple", splits=["train"])
    >>> kinograph.open("pick.kino")[2]
    Episode('episode_2': 20 frames, 0.95 s at 20 Hz, 3 streams)

    :param mode: ``"new"`` refuses a folder that holds something, ``"append"`` adds to a dataset, ``"resume"``
        continues a writer that was interrupted, whose finished episodes are in :attr:`resumed`, ``"overwrite"`` replaces a
        dataset: it is written beside the old one and takes its place in one step at the commit. Readers that have the
        old one open must open it again. Nothing but a dataset is ever overwritten. Any number of writers may append at
        the same time.
    :param plan: codecs per stream: the path of a TOML file, or the same as a dict. Without one, all comes
        back bit for bit.
    :param quality: images as JPEG of this quality (1 to 100) where the plan says nothing else; images that are given as
        JPEG files stay as they are.
    :param shard_size: the size at which a shard is closed, such as ``"128MB"``.
    :param memory: memory for frames in flight and for encoding them, such as ``"512MB"``.
    :param threads: worker threads; one per core if not given.
    :param attributes: what is known of the whole dataset.
    :param settings: what is being written and how, by name, so that ``"resume"`` only takes up work that was done under the
        same; the plan always counts.
    """

    # Also there when the constructor raises.
    _is_open = False

    def __init__(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        path: str | os.PathLike[str],
        *,
        mode: Mode = "new",
        plan: Plan = None,
        quality: int | None = None,
        shard_size: int | str = SHARD_SIZE,
        memory: int | str = MEMORY,
        threads: int | None = None,
        attributes: Mapping[str, Any] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        options = to_options(
            mode=mode,
            plan=plan,
            quality=quality,
            shard_size=shard_size,
            memory=memory,
            threads=threads,
            attributes=attributes,
            settings=settings,
        )
        self._path = Path(path)
        self._core = _core.Writer(self._path, options)
        self._process = os.getpid()
        self._is_open = True
        _open_writers.add(self)
        if interrupted := self._core.interrupted():
            warnings.warn(
                f"{self._path} holds {interrupted} finished episodes of an interrupted writer, which are not visible; "
                'mode="resume" adds them, kinograph.gc() lists and removes them',
                stacklevel=2,
            )

    @property
    def path(self) -> Path:
        """The folder that is written."""
        return self._path

    @property
    def resumed(self) -> frozenset[str]:
        """The ids of the episodes that the interrupted writer had finished: leave them out."""
        self._check_process()
        return frozenset(self._core.resumed())

    def add_episode(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        streams: Mapping[str, npt.ArrayLike | list[str] | list[bytes]],
        *,
        rate_hz: float | Mapping[str, float] | None = None,
        timestamps_ns: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None = None,
        id: str | None = None,  # noqa: A002 (the word that tables and episodes use)
        task: str | None = None,
        splits: Iterable[str] = (),
        success: bool | None = None,
        attributes: Mapping[str, Any] | None = None,
        labels: Mapping[str, Label] | None = None,
        kinds: Mapping[str, str] | None = None,
        protect: Iterable[tuple[float, float]] = (),
        licence: str | None = None,
        consent: str | None = None,
        source: str | None = None,
    ) -> None:
        """Write one episode; if this raises, the episode leaves no trace and the writer can go on.

        >>> writer = kinograph.Writer("touch.kino")
        >>> writer.add_episode(
        ...     {"force": np.zeros((1000, 6), np.float32), "obs/joints": np.zeros((100, 7))},
        ...     rate_hz={"force": 1000.0, "obs/joints": 100.0},
        ...     labels={"operator": "ana", "attempt": 3},
        ... )
        >>> writer.commit("first try").version
        1

        :param streams: arrays whose first axis is time; lists of ``str`` for text; lists of ``bytes`` for
            images that are JPEG files already, which are kept as they are. Names may have parts: ``"obs/wrist"``. Images
            are uint8 in HWC order; CHW and float images are refused with advice.
        :param rate_hz: frames per second, one number for all streams or one for each. Their first frame is taken at the
            earliest of ``timestamps_ns``, at 0 if there are none.
        :param timestamps_ns: instead of a rate, the time of every frame in whole nanoseconds, never going back.
        :param id: its name, unique in the dataset; ``episode_<n>`` if not given, with the next number that is free when the
            writer commits.
        :param attributes: anything that JSON can hold; kept with the episode.
        :param labels: columns of the episode table: numbers, strings, booleans.
        :param kinds: ``"vector"``, ``"image"``, ``"depth"`` or ``"text"`` for streams whose shape does not tell, such as
            ``kinds={"heatmap": "vector"}`` for an array that looks like images and is not.
        :param protect: stretches of time, as first and last second from the episode's first frame, whose frames come back
            bit for bit in streams that a plan stores with a bound and ``protect = ["given"]`` or ``["*"]``.
        :param licence: an SPDX expression.
        :param consent: what the people recorded agreed to.
        :param source: the file it comes from.
        """
        self._check_process()
        if isinstance(splits, str):
            raise InvalidArgumentError(f"splits is a list of names, not one: [{splits!r}]")
        episode: _core.EpisodeArgs = {
            "id": _to_optional_text("id", id),
            "splits": [to_text("a split", split) for split in to_list("splits", splits, "names")],
            "task": _to_optional_text("task", task),
            "success": _to_success(success),
            "licence": _to_optional_text("licence", licence),
            "consent": _to_optional_text("consent", consent),
            "source": _to_optional_text("source", source),
            "attributes": _to_json("attributes of the episode", attributes or {}),
            "labels": {name: _to_label(name, value) for name, value in (labels or {}).items()},
            "protect": [_to_stretch(stretch) for stretch in protect],
        }
        times = Times(rate_hz, timestamps_ns)
        self._core.add_episode(episode, to_streams(streams, times, kinds or {}))

    def commit(self, message: str = "") -> Committed:
        """Make everything written visible as a new version; the writer is closed.

        If it raises, all that was written stays in the dataset's ``staging/``, where ``mode="resume"`` finds it.
        """
        self._check_process()
        self._close()
        return Committed(*self._core.commit(message))

    def abandon(self) -> None:
        """Close without a commit: nothing of what was written is visible."""
        self._check_process()
        self._close()
        self._core.abandon()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if not self._is_open or os.getpid() != self._process:
            return
        if kind is None:
            self.commit()
        else:
            self.abandon()

    def __repr__(self) -> str:
        return f"Writer({str(self._path)!r}, {'open' if self._is_open else 'closed'})"

    def __del__(self) -> None:
        if self._is_open:
            warnings.warn(
                f"{self!r} was never committed: its episodes are lost",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Writer has threads and open files; it cannot be pickled")

    def _close(self) -> None:
        self._is_open = False
        _open_writers.discard(self)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise InvalidArgumentError(
                f"{self!r} belongs to process {self._process}, which this one was forked from; make a Writer in each process, with its own path"
            )


_open_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _disown_all() -> None:
    """In a forked process: leave the parent's files alone when the copies of its writers die here."""
    for writer in list(_open_writers):
        writer._close()
        writer._core.disown()


os.register_at_fork(after_in_child=_disown_all)


def to_options(  # noqa: PLR0913 (those of the constructor)
    *,
    mode: str,
    plan: Plan,
    quality: int | None,
    shard_size: int | str,
    memory: int | str,
    threads: int | None,
    attributes: Mapping[str, Any] | None,
    settings: Mapping[str, str] | None,
) -> _core.Options:
    """Check a writer's options and turn them into what the core takes."""
    if quality is not None:
        quality = to_whole("quality", quality, least=1, most=100)
    if not (plan is None or isinstance(plan, str | os.PathLike | Mapping)):
        raise InvalidArgumentError(f"the plan is {plan!r}; it must be a path or a dict")
    return {
        "mode": mode,
        "plan_toml": _read_plan(plan) if isinstance(plan, str | os.PathLike) else None,
        "plan_json": _to_json("the plan", plan) if isinstance(plan, Mapping) else None,
        "quality": quality,
        "shard_bytes": to_bytes("shard_size", shard_size),
        "memory_bytes": to_bytes("memory", memory),
        "threads": 0 if threads is None else to_whole("threads", threads),
        "attributes": _to_json("attributes of the dataset", attributes or {}),
        "settings": {str(name): str(value) for name, value in (settings or {}).items()},
    }


def _read_plan(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no plan {os.fspath(path)}") from error
    except OSError as error:
        raise StorageError(
            error.errno, f"cannot read the plan {os.fspath(path)}: {error}"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"the plan {os.fspath(path)} is not a UTF-8 text file: {error}"
        ) from error


def _to_json(what: str, value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(dict(value), default=_to_plain, allow_nan=False)
        # What the core would take for something else: it rounds larger numbers, and keeps the last of two values.
        json.loads(text, parse_int=_check_integer, object_pairs_hook=_check_keys)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{what}: cannot be stored as JSON: {error}") from None
    return text


def _check_integer(digits: str) -> None:
    if not -(1 << 63) <= int(digits) <= U64:
        raise ValueError(f"{digits} does not fit into 64 bits; store it as text")


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"two keys are {key!r} as text")
        seen.add(key)


def _to_plain(value: object) -> object:
    """Turn numpy's numbers and arrays into Python's, for JSON."""
    if isinstance(value, np.generic | np.ndarray):
        plain: object = value.tolist()
        return plain
    raise TypeError(f"{type(value).__name__} is not a number, text, list or dict")


def _to_optional_text(name: str, value: object) -> str | None:
    return None if value is None else to_text(name, value)


def _to_success(success: object) -> bool | None:
    if success is None or isinstance(success, bool | np.bool_):
        return None if success is None else bool(success)
    raise InvalidArgumentError(f"success is True, False or None, not {success!r}")


def _to_stretch(stretch: object) -> tuple[str, float, float]:
    """Turn a pair of seconds into what the core takes: the stretches that come with an episode are `given`."""
    try:
        start_s, end_s = (to_number("a second", second) for second in stretch)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"protect has {stretch!r}; a stretch of time is its first and last second: (1.5, 2.0)"
        ) from None
    if not 0 <= start_s <= end_s < 1e9:
        raise InvalidArgumentError(
            f"protect has {stretch!r}; a stretch begins at second 0 or later and ends after that"
        )
    return "given", start_s, end_s


def _to_label(name: str, value: object) -> Label:
    """Turn a label into one of Python's own types."""
    to_text("the name of a label", name)
    if name in BUILT_IN_COLUMNS:
        raise InvalidArgumentError(f"label `{name}` has the name of a column that every table has")
    # The item of a time is a whole number or a date of Python's, by its unit.
    is_time = isinstance(value, np.datetime64 | np.timedelta64)
    plain = value.item() if isinstance(value, np.generic) and not is_time else value
    if not isinstance(plain, bool | int | float | str):
        raise InvalidArgumentError(
            f"label `{name}` is {value!r}; a label is a number, text, True or False (anything else goes into attributes=)"
        )
    if isinstance(plain, int) and not -(1 << 63) <= plain < 1 << 63:
        raise InvalidArgumentError(f"label `{name}` is {value!r}, which 64 bits cannot hold")
    return to_text(f"label `{name}`", plain) if isinstance(plain, str) else plain
