"""Robot demonstrations in little space, read back as numpy arrays.

Reading:

    >>> ds = kinograph.open("lift.kino")
    >>> ds  # doctest: +ELLIPSIS
    Dataset('lift.kino', version 1: 2 episodes, 90 frames at 20 Hz, 4 streams, 216.1 kB → ...)
    >>> ds[0]["obs/agentview_image"][10:20].shape
    (10, 32, 24, 3)
    >>> ds["demo_1"]["actions"][0.0:1.5].shape
    (30, 7)

Writing:

    >>> with kinograph.Writer("mine.kino") as writer:
    ...     writer.add_episode({"actions": np.zeros((50, 7))}, rate_hz=20.0)
    >>> len(kinograph.open("mine.kino"))
    1

Every error about data or values is a ``KinographError``; a wrong Python type may also raise ``TypeError``.
"""

from kinograph import _core
from kinograph._dataset import Dataset, open  # noqa: A004 (`kinograph.open` is meant to be written out)
from kinograph._episode import Episode
from kinograph._errors import (
    ConflictError,
    CorruptDataError,
    InvalidArgumentError,
    KinographError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from kinograph._pack import pack
from kinograph._stream import Stream
from kinograph._verify import verify
from kinograph._writer import Writer

__version__ = _core.VERSION

__all__ = [
    "ConflictError",
    "CorruptDataError",
    "Dataset",
    "Episode",
    "InvalidArgumentError",
    "KinographError",
    "NotFoundError",
    "StorageError",
    "Stream",
    "UnsupportedError",
    "Writer",
    "__version__",
    "open",
    "pack",
    "verify",
]
