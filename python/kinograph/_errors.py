"""The exceptions: one tree, and in it the classes that Python code already catches.

``except kinograph.KinographError`` catches all of them, ``except KeyError`` an episode that is not there.
Messages name streams and episodes as files have them, so what a terminal would obey is shown escaped.
"""

from typing import Any


class KinographError(Exception):
    """Anything that goes wrong between a dataset and its user."""

    __module__ = "kinograph"

    def __str__(self) -> str:
        return _shown(super().__str__())


class KinographWarning(UserWarning):
    """Something works, but not as well as it could; the message says what would help."""

    __module__ = "kinograph"


class CorruptDataError(KinographError):
    """Bytes on disk are not what was written; the message names shard, episode, stream and frames."""

    __module__ = "kinograph"


class UnsupportedError(KinographError):
    """The dataset needs a newer ``kinograph``."""

    __module__ = "kinograph"


class InvalidArgumentError(KinographError, ValueError):
    """An argument is wrong; the message says what would be right."""

    __module__ = "kinograph"


class NotFoundError(KinographError, KeyError, IndexError):
    """A dataset, version, episode, stream, column or frame that is not there; the message says what is.

    >>> ds["demo_9"]
    Traceback (most recent call last):
    kinograph.NotFoundError: no episode `demo_9`; there are 2 such as demo_0, demo_1
    """

    __module__ = "kinograph"

    def __str__(self) -> str:
        # A KeyError shows the repr of its key; ours carries a sentence.
        return _shown(self.args[0]) if self.args else ""


class ConflictError(KinographError):
    """The target holds something already, or another writer was faster."""

    __module__ = "kinograph"


class StorageError(KinographError, OSError):
    """The file system failed; ``errno`` has its number where it gave one."""

    __module__ = "kinograph"

    def __str__(self) -> str:
        # An OSError puts its number first; ours ends with the system's own words.
        return _shown(self.args[-1]) if self.args else ""


def _shown(message: Any) -> str:  # noqa: ANN401 (whatever the exception was made with)
    # The core takes its exceptions from here, so it is not there yet while this file is read.
    from kinograph import _core  # noqa: PLC0415

    return _core.escape(str(message))
