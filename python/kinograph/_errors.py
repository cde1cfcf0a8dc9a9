"""The exceptions: one hierarchy, which also derives from the built-in classes that Python code already catches.

``except kinograph.KinographError`` catches all of them, ``except KeyError`` a missing episode.
Messages contain names of streams and episodes from files, so terminal control characters in them are escaped.
"""

import pathlib
import sys
from typing import Any


class KinographError(Exception):
    """Base class of all Kinograph errors."""

    __module__ = "kinograph"

    def __str__(self) -> str:
        return _shown(super().__str__())


class KinographWarning(UserWarning):
    """Something works, but not as well as it could; the message says what would help."""

    __module__ = "kinograph"


class CorruptDataError(KinographError):
    """The data on disk is damaged; the message names the shard, episode, stream and frames."""

    __module__ = "kinograph"


class UnsupportedError(KinographError):
    """The dataset needs a newer ``kinograph``, or a library or foreign codec that is missing or fails here."""

    __module__ = "kinograph"


class InvalidArgumentError(KinographError, ValueError):
    """An argument is invalid; the message says what is accepted."""

    __module__ = "kinograph"


class NotFoundError(KinographError, KeyError, IndexError):
    """A dataset, version, episode, stream, column or frame does not exist; the message lists what does.

    >>> ds["demo_9"]
    Traceback (most recent call last):
    kinograph.NotFoundError: there is no episode `demo_9`; the dataset has 2 episodes, such as demo_0, demo_1
    """

    __module__ = "kinograph"

    def __str__(self) -> str:
        # A KeyError shows the repr of its key; ours holds a sentence.
        return _shown(self.args[0]) if self.args else ""


class ConflictError(KinographError):
    """The target already exists, or another writer committed first."""

    __module__ = "kinograph"


class StorageError(KinographError, OSError):
    """The file system reported an error; ``errno`` has its error number, if any."""

    __module__ = "kinograph"

    def __str__(self) -> str:
        # An OSError shows its number first; our message already ends with the system's own text.
        return _shown(self.args[-1]) if self.args else ""


class TransformError(KinographError):
    """A transform of the user failed; ``__cause__`` is its error, and ``index`` says at which place of the order."""

    __module__ = "kinograph"

    index: int


def closed() -> InvalidArgumentError:
    """Say that a batch was waited for and will not come."""
    return InvalidArgumentError("the loader was closed while it was used")


def forked() -> InvalidArgumentError:
    """Say that a loader's threads are those of another process."""
    return InvalidArgumentError(
        "the loader was made before this process was forked, and its threads stayed behind; make a new one after the fork"
    )


def _shown(message: Any) -> str:  # noqa: ANN401 (any object can be an exception's argument)
    # The core imports its exceptions from this module, so it cannot be imported at the top.
    from kinograph import _core  # noqa: PLC0415

    return _core.escape(str(message))


def outside() -> int:
    """Count the frames up to the first that is not of this package, for a warning that names the user's line."""
    package = str(pathlib.Path(__file__).parent)
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    return level
