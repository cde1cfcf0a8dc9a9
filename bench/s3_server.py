"""An object store in memory that speaks enough of S3 for benchmarks, behind an emulated link.

    python bench/s3_server.py FOLDER --latency-ms 50 --mb-per-s 20

Objects of the bucket `lab` are the files of FOLDER and what is put; every request is one step of one thread, so a conditional
put (`If-None-Match: *`) has exactly one winner. Ranges, listings and deletes work; multipart uploads and signatures do not.
moto, which the tests use, has more of S3 but answers about 100 requests per second; this answers thousands.

`GET /-/counts` says how many requests and bytes there were since the last time.
"""

import argparse
import asyncio
import bisect
import collections
import contextlib
import datetime
import email.utils
import hashlib
import json
import multiprocessing
import re
import time
import urllib.parse
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

PIECE = 64 << 10


class Object(NamedTuple):
    """What is stored under a key."""

    content: bytes
    tag: str
    modified: str
    listed: str


class Answer(NamedTuple):
    """What is sent."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


class Store:
    """The objects, and the link that all answers share."""

    def __init__(self, folder: Path | None, latency_s: float, bytes_per_s: float) -> None:
        self.objects: dict[str, Object] = {}
        self._keys: list[str] = []
        self.latency_s, self.bytes_per_s = latency_s, bytes_per_s
        self.counts: collections.Counter[str] = collections.Counter()
        self._free_at = 0.0
        for path in sorted(folder.rglob("*")) if folder else ():
            if path.is_file():
                self.put(f"/lab/{path.relative_to(folder)}", path.read_bytes())

    def put(self, key: str, content: bytes) -> Object:
        """Create or replace an object."""
        tag = '"' + hashlib.md5(content, usedforsecurity=False).hexdigest() + '"'
        if key not in self.objects:
            bisect.insort(self._keys, key)
        now = datetime.datetime.now(datetime.timezone.utc)
        self.objects[key] = Object(
            content, tag, email.utils.format_datetime(now, usegmt=True), now.isoformat()
        )
        return self.objects[key]

    def remove(self, key: str) -> None:
        """Remove an object, if it is there."""
        if self.objects.pop(key, None):
            del self._keys[bisect.bisect_left(self._keys, key)]

    def answer(self, command: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Do what is asked for."""
        path, _, query = target.partition("?")
        key, asked = urllib.parse.unquote(path), urllib.parse.parse_qs(query, True)
        self.counts[command] += 1
        if command == "GET" and "list-type" in asked:
            return self.list(key, {name: values[0] for name, values in asked.items()})
        if command == "PUT":
            if headers.get("if-none-match") == "*" and key in self.objects:
                return error(412, "PreconditionFailed")
            return Answer(200, {"ETag": self.put(key, body).tag})
        if command == "DELETE":
            self.remove(key)
            return Answer(204, {})
        if command in ("GET", "HEAD") and not asked.keys() - {"x-id", "versionId", "partNumber"}:
            return self.read(key, headers.get("range", ""))
        return error(501, "NotImplemented")

    def read(self, key: str, asked: str) -> Answer:
        """Answer with an object, or a range of it."""
        found = self.objects.get(key)
        if found is None:
            return error(404, "NoSuchKey")
        described = {
            "ETag": found.tag,
            "Last-Modified": found.modified,
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", asked)
        size = len(found.content)
        if span is None:
            return Answer(200, described, found.content)
        start = int(span[1]) if span[1] else max(0, size - int(span[2]))
        end = min(size, int(span[2]) + 1) if span[1] and span[2] else size
        if start >= size:
            return error(416, "InvalidRange")
        described["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return Answer(206, described, found.content[start:end])

    def list(self, bucket: str, asked: dict[str, str]) -> Answer:
        """List keys, a thousand at a time."""
        whole = bucket.rstrip("/") + "/"
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after = asked.get("continuation-token", asked.get("start-after", ""))
        entries: dict[str, str] = {}
        first = max(
            bisect.bisect_left(self._keys, whole + prefix),
            bisect.bisect_right(self._keys, whole + after),
        )
        for place in range(first, len(self._keys)):
            key = self._keys[place].removeprefix(whole)
            if not self._keys[place].startswith(whole + prefix):
                break
            rest = key[len(prefix) :]
            folder = ""
            if delimiter and delimiter in rest:
                folder = prefix + rest.split(delimiter)[0] + delimiter
            if folder and folder <= after:
                continue
            if folder:
                entries[folder] = (
                    f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                )
            else:
                found = self.objects[self._keys[place]]
                entries[key] = (
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(found.content)}</Size>"
                    f"<LastModified>{found.listed}</LastModified><ETag>{escape(found.tag)}</ETag></Contents>"
                )
            if len(entries) > 1000:
                break
        names = list(entries)[:1000]
        more = len(entries) > 1000
        token = (
            f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>" if more else ""
        )
        text = (
            f"<ListBucketResult><KeyCount>{len(names)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{token}{''.join(entries[name] for name in names)}</ListBucketResult>"
        )
        return Answer(200, {"Content-Type": "application/xml"}, text.encode())

    async def pass_link(self, count: int) -> None:
        """Wait until so many bytes have passed; what a late server has not used is made up for, up to a fifth of a second."""
        self._free_at = max(self._free_at, time.monotonic() - 0.2) + count / self.bytes_per_s
        wait = self._free_at - time.monotonic()
        if wait > 0.001:
            await asyncio.sleep(wait)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, one after the other."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").rstrip().split("\r\n")
                command, target, _ = first.split(" ", 2)
                pairs = (line.split(":", 1) for line in lines)
                headers = {name.lower(): value.strip() for name, value in pairs}
                if headers.get("expect") == "100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if target == "/-/counts":
                    answer = Answer(200, {}, json.dumps(self.counts).encode())
                    self.counts.clear()
                else:
                    if self.latency_s:
                        await asyncio.sleep(self.latency_s)
                    answer = self.answer(command, target, headers, body)
                await self.send(writer, answer, with_body=command != "HEAD")
        writer.close()

    async def send(self, writer: asyncio.StreamWriter, answer: Answer, *, with_body: bool) -> None:
        """Send an answer, piece by piece."""
        lines = [f"HTTP/1.1 {answer.status} X", f"Content-Length: {len(answer.body)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for start in range(0, len(answer.body) if with_body else 0, PIECE):
            piece = answer.body[start : start + PIECE]
            await self.pass_link(len(piece))
            writer.write(piece)
            await writer.drain()
            self.counts["bytes"] += len(piece)


def error(status: int, code: str) -> Answer:
    """Refuse in the form of S3."""
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return Answer(status, {"Content-Type": "application/xml"}, body)


async def run(store: Store, pipe: Connection | None) -> None:
    """Serve until the process ends."""
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0, limit=1 << 20, backlog=512)
    url = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
    if pipe is None:
        print(url, flush=True)
    else:
        pipe.send(url)
    await server.serve_forever()


def start(pipe: Connection, folder: Path | None, latency_s: float, bytes_per_s: float) -> None:
    """Run a server in a process of its own."""
    asyncio.run(run(Store(folder, latency_s, bytes_per_s), pipe))


@contextlib.contextmanager
def serving(
    folder: Path | None = None, latency_s: float = 0.0, bytes_per_s: float = 1e12
) -> Iterator[str]:
    """Run a server in another process; give its URL."""
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    arguments = (other, folder, latency_s, bytes_per_s)
    process = context.Process(target=start, args=arguments, daemon=True)
    process.start()
    try:
        yield pipe.recv()
    finally:
        process.kill()
        process.join()


def environment(url: str) -> dict[str, str]:
    """Name the server as S3's own tools do."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def main() -> None:
    """Serve a folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--mb-per-s", type=float, default=1e6)
    options = parser.parse_args()
    store = Store(options.folder, options.latency_ms / 1000, options.mb_per_s * 1e6)
    asyncio.run(run(store, None))


if __name__ == "__main__":
    main()
