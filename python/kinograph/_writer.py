"""Writing a dataset: episodes in, one new version out."""

from __future__ import annotations

import datetime
import json
import os
import types
import warnings
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import U64, to_bytes, to_list, to_number, to_text, to_whole
from kinograph._arrays import Times, to_streams
from kinograph._errors import InvalidArgumentError, NotFoundError, StorageError
from kinograph._place import to_place
from kinograph._table import BUILT_IN_COLUMNS

Label: TypeAlias = bool | int | float | str
Mode: TypeAlias = Literal["new", "append", "resume", "overwrite"]


class Chosen(Protocol):
    """What :func:`kinograph.plan` chose."""

    def to_toml(self) -> str:
        """Give the plan as TOML."""
        ...


Plan: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Chosen | None

SHARD_SIZE = 128 << 20
MEMORY = 512 << 20


class Committed(NamedTuple):
    """The result of a commit."""

    version: int
    id: str
    episodes: int


class Writer:
    """Writes episodes into a dataset and makes them visible in one step.

    In a ``with`` block it commits at the end; if the block raises, nothing becomes visible. Otherwise,
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

    :param mode: ``"new"`` refuses a non-empty folder, ``"append"`` adds to a dataset, ``"resume"``
        continues an interrupted writer, whose finished episodes are in :attr:`resumed`, ``"overwrite"`` replaces a
        dataset: the new one is written beside it and takes its place in one step at the commit. Readers that have the
        old one open must reopen it. Only datasets are ever overwritten. Any number of writers may append at
        the same time.
    :param plan: codecs and sizes per stream: the path of a TOML file, the same as a dict, or what :func:`kinograph.plan` returns. Default: everything
        is stored losslessly.
    :param quality: store images as JPEG of this quality (1 to 100) unless the plan has a rule for them; images passed
        as JPEG files are stored unchanged, and images that are no larger without loss are stored losslessly.
    :param shard_size: target size of a shard, such as ``"128MB"``.
    :param memory: memory limit for in-flight frames, such as ``"512MB"``.
    :param threads: worker threads; default: one per core.
    :param attributes: attributes of the dataset.
    :param settings: names and values that identify the work, so that ``"resume"`` only continues work with the
        same ones; the plan always counts.
    """

    # Also defined if the constructor raises.
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
        self._path = to_place(path)
        self._core = _core.Writer(self._path, options)
        self._process = os.getpid()
        self._is_open = True
        _open_writers.add(self)
        if interrupted := self._core.interrupted():
            warnings.warn(
                f"{self._path} has {interrupted} finished episodes of an interrupted writer, which are not visible; "
                'mode="resume" adds them, kinograph.gc() lists and removes them',
                stacklevel=2,
            )

    @property
    def path(self) -> Path | str:
        """The dataset's folder, or its URL as text."""
        return self._path

    @property
    def resumed(self) -> frozenset[str]:
        """The ids of the episodes that the interrupted writer had finished: skip them."""
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
        """Write one episode; if this raises, nothing of the episode is kept and the writer can continue.

        >>> writer = kinograph.Writer("touch.kino")
        >>> writer.add_episode(
        ...     {"force": np.zeros((1000, 6), np.float32), "obs/joints": np.zeros((100, 7))},
        ...     rate_hz={"force": 1000.0, "obs/joints": 100.0},
        ...     labels={"operator": "ana", "attempt": 3},
        ... )
        >>> writer.commit("first try").version
        1

        :param streams: arrays whose first axis is time; lists of ``str`` for text; lists of ``bytes`` for
            JPEG files, which are stored unchanged. Names may be paths: ``"obs/wrist"``. Images
            are uint8 in HWC order; CHW and float images are refused with advice.
        :param rate_hz: frames per second, one number for all streams or one per stream. The first frame is at the
            earliest of ``timestamps_ns``, or at 0 if there are none.
        :param timestamps_ns: instead of a rate, the timestamp of every frame in integer nanoseconds, non-decreasing.
        :param id: its name, unique in the dataset; default: ``episode_<n>``, with the next free number when the
            writer commits.
        :param attributes: anything that JSON can hold; stored with the episode.
        :param labels: columns of the episode table: numbers, text or bools.
        :param kinds: ``"vector"``, ``"image"``, ``"depth"`` or ``"text"`` for streams whose shape is ambiguous, such as
            ``kinds={"heatmap": "vector"}`` for an array that looks like images but is not.
        :param protect: time ranges, in seconds from the episode's first frame, whose frames are stored
            losslessly in streams that a plan stores with a bound and ``protect = ["given"]`` or ``["*"]``.
        :param licence: an SPDX expression.
        :param consent: what the people recorded agreed to.
        :param source: the file it comes from.
        """
        self._check_process()
        if isinstance(splits, str):
            raise InvalidArgumentError(f"splits must be a list of names: [{splits!r}]")
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

        If it raises, everything written stays in the dataset's ``staging/``, where ``mode="resume"`` finds it.
        """
        self._check_process()
        self._close()
        return Committed(*self._core.commit(message))

    def abandon(self) -> None:
        """Close without a commit: nothing that was written becomes visible."""
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
                f"{self!r} belongs to process {self._process}, which this one was forked from; create a Writer in each process, with its own path"
            )


_open_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _disown_all() -> None:
    """In a forked process: do not touch the parent's files when the copies of its writers are collected here."""
    for writer in list(_open_writers):
        writer._close()
        writer._core.disown()


os.register_at_fork(after_in_child=_disown_all)


def to_options(  # noqa: PLR0913 (same as in the constructor)
    *,
    mode: str,
    plan: Plan,
    quality: int | None,
    shard_size: int | str,
    memory: int | str,
    threads: int | None,
    attributes: Mapping[str, Any] | None,
    settings: Mapping[str, str] | None,
    created: str | datetime.datetime | None = None,
) -> _core.Options:
    """Check a writer's options and convert them for the core."""
    if quality is not None:
        quality = to_whole("quality", quality, least=1, most=100)
    if isinstance(plan, str | os.PathLike):
        toml = _read_plan(plan)
    elif plan is None or isinstance(plan, Mapping):
        toml = None
    elif hasattr(plan, "to_toml"):
        toml = plan.to_toml()
    else:
        raise InvalidArgumentError(
            f"plan is {plan!r}; it must be a path, a dict, or what kinograph.plan returns"
        )
    return {
        "mode": mode,
        "plan_toml": toml,
        "plan_json": _to_json("the plan", plan) if isinstance(plan, Mapping) else None,
        "quality": quality,
        "shard_bytes": to_bytes("shard_size", shard_size),
        "memory_bytes": to_bytes("memory", memory),
        "threads": 0 if threads is None else to_whole("threads", threads),
        "attributes": _to_json("attributes of the dataset", attributes or {}),
        "settings": {str(name): str(value) for name, value in (settings or {}).items()},
        "created": _to_time(created),
    }


def _to_time(created: str | datetime.datetime | None) -> str | None:
    """Convert a time for the core, in UTC."""
    if not isinstance(created, datetime.datetime):
        return None if created is None else to_text("created", created)
    if created.tzinfo is None:
        raise InvalidArgumentError(
            f"created is {created!r}, which has no time zone; pass datetime.now(timezone.utc), or text that ends in Z"
        )
    return created.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read_plan(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"the plan {os.fspath(path)} does not exist; check the path") from error
    except OSError as error:
        raise StorageError(
            error.errno, f"cannot read the plan {os.fspath(path)}: {error}"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"the plan {os.fspath(path)} is not UTF-8 text: {error}"
        ) from error


def _to_json(what: str, value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(dict(value), default=_to_plain, allow_nan=False)
        # The core would misread these: it rounds larger integers, and keeps the last of two equal keys.
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
    """Convert numpy scalars and arrays to Python's, for JSON."""
    if isinstance(value, np.generic | np.ndarray):
        plain: object = value.tolist()
        return plain
    raise TypeError(f"{type(value).__name__} is not a number, text, list or dict")


def _to_optional_text(name: str, value: object) -> str | None:
    return None if value is None else to_text(name, value)


def _to_success(success: object) -> bool | None:
    if success is None or isinstance(success, bool | np.bool_):
        return None if success is None else bool(success)
    raise InvalidArgumentError(f"success must be True, False or None, not {success!r}")


def _to_stretch(stretch: object) -> tuple[str, float, float]:
    """Convert a time range for the core: those passed with an episode are `given`."""
    try:
        start_s, end_s = (to_number("a second", second) for second in stretch)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"protect has {stretch!r}; a time range is its first and last second: (1.5, 2.0)"
        ) from None
    if not 0 <= start_s <= end_s < 1e9:
        raise InvalidArgumentError(
            f"protect has {stretch!r}; a time range must begin at second 0 or later and end after that"
        )
    return "given", start_s, end_s


def _to_label(name: str, value: object) -> Label:
    """Convert a label to a built-in Python type."""
    to_text("the name of a label", name)
    if name in BUILT_IN_COLUMNS:
        raise InvalidArgumentError(
            f"label `{name}` has the name of a built-in column; choose another name"
        )
    # The item of a datetime64 is an int or a Python date, depending on its unit.
    is_time = isinstance(value, np.datetime64 | np.timedelta64)
    plain = value.item() if isinstance(value, np.generic) and not is_time else value
    if not isinstance(plain, bool | int | float | str):
        raise InvalidArgumentError(
            f"label `{name}` is {value!r}; a label must be a number, text, True or False (pass anything else as attributes=)"
        )
    if isinstance(plain, int) and not -(1 << 63) <= plain < 1 << 63:
        raise InvalidArgumentError(f"label `{name}` is {value!r}, which does not fit into 64 bits")
    return to_text(f"label `{name}`", plain) if isinstance(plain, str) else plain
