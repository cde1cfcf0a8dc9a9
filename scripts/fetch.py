"""Fetch a file whose SHA-256 is known, from the first address that has it.

    fetch.py SHA256 DESTINATION URL...

A file with another hash is never left behind.
"""

import hashlib
import pathlib
import sys
import urllib.error
import urllib.request


def fetch(sha256: str, destination: pathlib.Path, urls: list[str]) -> bool:
    """Try each address in turn; say on stderr why one was passed over."""
    for url in urls:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                content = answer.read()
        except (urllib.error.URLError, OSError) as error:
            print(f"{url}: {error}", file=sys.stderr)
            continue
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            print(f"{url}: SHA-256 is {found}, expected {sha256}", file=sys.stderr)
            continue
        destination.write_bytes(content)
        return True
    return False


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    if not fetch(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]):
        sys.exit(1)
