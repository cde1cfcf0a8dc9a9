"""Where FFmpeg's libraries are: PyAV's wheel brings them.

The core loads libavcodec only when a stream needs it: to encode AV1, and to decode video that it cannot decode itself.
Nothing is imported here, so that ``import kinograph`` stays fast.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys

from kinograph import _core


def folders() -> list[str]:
    """Return folders in which libavcodec may be: that of PyAV's wheel, then that of a conda environment.

    >>> from kinograph import _ffmpeg
    >>> isinstance(_ffmpeg.folders(), list)
    True
    """
    found = importlib.util.find_spec("av")
    if found is None or found.origin is None:
        return []
    package = pathlib.Path(found.origin).parent
    candidates = [package.parent / "av.libs", package / ".dylibs", pathlib.Path(sys.prefix) / "lib"]
    return [str(folder) for folder in candidates if folder.is_dir()]


def register() -> None:
    """Tell the core where to look."""
    for folder in folders():
        _core.add_ffmpeg_folder(folder)
    # SVT-AV1 prints its settings for every video that it encodes; errors only.
    os.environ.setdefault("SVT_LOG", "1")
