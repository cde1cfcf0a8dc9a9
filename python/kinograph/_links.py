"""What a dataset links to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class LinkedFile:
    """A file that pages of a dataset are linked to."""

    #: Its path below the root.
    path: str
    bytes: int
    #: When it was last modified, RFC 3339; ``None`` if the system did not say.
    modified: str | None
    #: Its hash; ``None`` if it was linked with ``trust``.
    blake3: str | None


@dataclasses.dataclass(frozen=True)
class Links:
    """The files that pages of a dataset are linked to."""

    #: The folder they were in when they were linked.
    root: Path
    files: tuple[LinkedFile, ...]

    @classmethod
    def _from_json(cls, links: dict[str, Any]) -> Links:
        names = [field.name for field in dataclasses.fields(LinkedFile)]
        files = (LinkedFile(*(file.get(name) for name in names)) for file in links["files"])
        return cls(Path(links["root"]), tuple(files))
