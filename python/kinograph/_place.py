"""Where a dataset is: a path, or a URL, which ``pathlib`` would damage (``s3://a`` becomes ``s3:/a``)."""

from __future__ import annotations

import os
from pathlib import Path

from kinograph import _core


def to_place(path: str | os.PathLike[str]) -> Path | str:
    """Turn what the user gave into a path, or into the text of a URL."""
    text = os.fspath(path)
    return _core.to_url(text) or Path(text)
