"""The interface of a system: how its files are built, and how it yields batches."""

import pathlib
from collections.abc import Iterator
from typing import Any, ClassVar

from contract import WORK, Recording, Workload


class System:
    """A loader with its files. Each module here has one subclass, `Made`."""

    #: Yields exactly the samples of `contract.index_batches`; otherwise batches have `ep` and `t`.
    follows_index: ClassVar[bool] = True
    #: Packages whose versions are reported.
    packages: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, variant: str) -> None:
        self.name, self.variant = name, variant

    def refuse(self, recording: Recording, workload: Workload) -> str | None:
        """Return why this system cannot run a workload."""
        return None

    def files(self, workload: Workload) -> str:
        """Name the files; systems that read the same files return the same name."""
        return type(self).__module__.rpartition(".")[2]

    def path(self, recording: Recording, workload: Workload) -> pathlib.Path:
        """Return the path of the files."""
        return WORK / "built" / recording.name / self.files(workload)

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write the files."""
        raise NotImplementedError

    def disk_bytes(self, recording: Recording, path: pathlib.Path) -> int:
        """Return the size of the files."""
        if path.is_file():
            return path.stat().st_size
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[dict[str, Any]]:
        """Yield batches forever, made by this many threads or processes."""
        raise NotImplementedError

    def warm_batches(self, recording: Recording, workload: Workload) -> int:
        """Return after how many batches the steady state begins."""
        return 6

    def mark(self) -> None:
        """Note that the timed part begins."""

    def figures(self) -> dict[str, Any]:
        """Return more figures about the timed part."""
        return {}
