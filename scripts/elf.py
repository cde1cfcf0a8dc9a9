"""What a shared library needs from others: library names, and symbols with their versions. 64-bit little-endian ELF only.

    header ─► section headers ─► .dynamic         NEEDED: names of libraries
                                 .dynsym          symbols; section 0 means that another library defines it
                                 .gnu.version     a version number for each symbol
                                 .gnu.version_r   a library and version name for each number

Reads only what `install_torch.py` needs, and only files of a wheel from PyPI.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path

_DYNSYM, _DYNAMIC, _VERNEED, _VERSYM = 11, 6, 0x6FFFFFFE, 0x6FFFFFFF
_NEEDED = 1
_WEAK = 2


@dataclass
class Needs:
    """What one library needs from others."""

    libraries: list[str] = field(default_factory=list)
    #: Symbol to the library that defines it and its version there; both are empty if unspecified.
    symbols: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Section:
    kind: int
    start: int
    size: int
    link: int


class _File:
    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        (headers,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        self.sections = []
        for number in range(count):
            kind, _, _, start, length, link = struct.unpack_from(
                "<IQQQQI", data, headers + number * size + 4
            )
            self.sections.append(_Section(kind, start, length, link))

    def section(self, kind: int) -> _Section | None:
        """Find the section of a kind; each of ours occurs at most once."""
        return next((section for section in self.sections if section.kind == kind), None)

    def text(self, section: _Section, place: int) -> str:
        """Read a name from the string table of a section."""
        start = self.sections[section.link].start + place
        return self.data[start : self.data.find(b"\0", start)].decode()


def read_needs(path: Path) -> Needs:
    """Read what a shared library needs from others."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
        elf = _File(data)
        return Needs(_read_libraries(elf), _read_symbols(elf))


def _read_libraries(elf: _File) -> list[str]:
    section = elf.section(_DYNAMIC)
    if section is None:
        return []
    entries = struct.iter_unpack("<qQ", elf.data[section.start : section.start + section.size])
    return [elf.text(section, value) for tag, value in entries if tag == _NEEDED]


def _read_symbols(elf: _File) -> dict[str, tuple[str, str]]:
    section, numbers = elf.section(_DYNSYM), elf.section(_VERSYM)
    if section is None:
        return {}
    versions = _read_versions(elf)
    symbols = {}
    rows = struct.iter_unpack("<IBBHQQ", elf.data[section.start : section.start + section.size])
    for row, (name, info, _, home, _, _) in enumerate(rows):
        if home == 0 and name and info >> 4 != _WEAK:
            number = 0
            if numbers is not None:
                (number,) = struct.unpack_from("<H", elf.data, numbers.start + row * 2)
            symbols[elf.text(section, name)] = versions.get(number & 0x7FFF, ("", ""))
    return symbols


def _read_versions(elf: _File) -> dict[int, tuple[str, str]]:
    section = elf.section(_VERNEED)
    versions: dict[int, tuple[str, str]] = {}
    if section is None:
        return versions
    place, is_more = section.start, True
    while is_more:
        _, count, library, first, after = struct.unpack_from("<HHIII", elf.data, place)
        entry = place + first
        for _ in range(count):
            _, _, number, name, step = struct.unpack_from("<IHHII", elf.data, entry)
            versions[number & 0x7FFF] = elf.text(section, library), elf.text(section, name)
            entry += step
        place, is_more = place + after, after != 0
    return versions
