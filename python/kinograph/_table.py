"""The episode table: one row per episode, columns as numpy arrays, pandas or Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._errors import NotFoundError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# The columns that every table has; all others were added by users.
BUILT_IN_COLUMNS = (
    "episode",
    "id",
    "frames",
    "start_ns",
    "duration_s",
    "bytes",
    "raw_bytes",
    "shard",
    "slot",
    "hash",
    "splits",
    "task",
    "success",
    "licence",
    "consent",
    "source",
    "source_hash",
)

_NEEDS_EXTRA = "{name} is not installed; run `pip install kinograph[table]`"


class EpisodeTable:
    """The episode table of a dataset; each column is read from disk on first access.

    >>> table = ds.episodes
    >>> table
    EpisodeTable(2 episodes; columns: episode, id, frames, start_ns, duration_s, bytes, raw_bytes, shard, slot, hash, splits, task, success, licence, consent, source, source_hash, operator)
    >>> table["frames"]
    array([40, 50])
    >>> table.to_pandas().groupby("task")["frames"].sum()["lift the cube"]
    np.int64(90)
    """

    __slots__ = ("_columns", "_core", "_read")

    def __init__(self, core: _core.Dataset) -> None:
        self._core = core
        self._columns = core.columns()
        self._read: dict[str, tuple[str, list[Any]]] = {}

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(self._core)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return a column as an array.

        Numeric and bool columns have numpy dtypes. Text, lists, and integer or bool columns with missing values are
        object arrays, with ``None`` for missing values. A missing float is NaN.
        """
        kind, values = self._column(name)
        if kind == "float":
            return np.array([np.nan if value is None else value for value in values], np.float64)
        if kind in ("int", "bool") and None not in values:
            return np.array(values, np.int64 if kind == "int" else np.bool_)
        objects = np.empty(len(values), object)
        for row, value in enumerate(values):
            objects[row] = value
        return objects

    def values(self, name: str) -> list[Any]:
        """Return a column as a list of Python values, with ``None`` for missing values."""
        return self._column(name)[1]

    def to_pandas(self) -> pd.DataFrame:
        """Copy the table into a pandas DataFrame."""
        try:
            import pandas as pd  # noqa: PLC0415 (optional)
        except ImportError as error:
            raise ImportError(_NEEDS_EXTRA.format(name="pandas")) from error
        return pd.DataFrame({name: self[name] for name in self._columns})

    def to_arrow(self) -> pa.Table:
        """Copy the table into an Arrow table."""
        try:
            import pyarrow as pa  # noqa: PLC0415 (optional)
        except ImportError as error:
            raise ImportError(_NEEDS_EXTRA.format(name="pyarrow")) from error
        types = {
            "bool": pa.bool_(),
            "int": pa.int64(),
            "float": pa.float64(),
            "text": pa.string(),
            "texts": pa.list_(pa.string()),
        }
        columns = {name: self._column(name) for name in self._columns}
        return pa.table(
            {name: pa.array(values, types[kind]) for name, (kind, values) in columns.items()}
        )

    def __repr__(self) -> str:
        columns = _core.escape(", ".join(self._columns))
        return f"EpisodeTable({len(self)} episodes; columns: {columns})"

    def _column(self, name: str) -> tuple[str, list[Any]]:
        if name not in self._columns:
            raise NotFoundError(f"no column `{name}`; the table has {', '.join(self._columns)}")
        if name not in self._read:
            self._read[name] = self._core.column(name)
        return self._read[name]
