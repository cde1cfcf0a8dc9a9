"""Servers for tests of remote datasets: a plain web server, and faults on the way to it or to those of `clouds.py`."""

import contextlib
import http.client
import http.server
import random
import re
import threading
import time
import urllib.parse
from pathlib import Path
from typing import NamedTuple


class Server(http.server.ThreadingHTTPServer):
    """A web server on a free port that forgets the errors of clients that went away."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Faults:
    """Which answers go wrong: a fixed sequence of random numbers, so that each run has the same mixture."""

    def __init__(self, *, stall_s=10.0, seed=7, **shares):
        self.shares = dict.fromkeys(("busy", "stall", "reset", "cut", "etag"), 0.0) | shares
        self.stall_s = stall_s
        self.seen = dict.fromkeys(self.shares, 0)
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def next(self):
        """Name the fault of the next answer, if it has one."""
        with self._lock:
            number = self._random.random()
            for name, share in self.shares.items():
                if number < share:
                    self.seen[name] += 1
                    return name
                number -= share
        return None


class Web(http.server.BaseHTTPRequestHandler):
    """Files of a folder, with ranges and entity tags, and with faults."""

    protocol_version = "HTTP/1.1"
    folder = Path()
    faults = Faults()
    latency_s = 0.0
    has_ranges = True
    counts: dict[str, int]

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, *, with_body):
        time.sleep(self.latency_s)
        path = self.folder / self.path.lstrip("/")
        self.counts[self.command] = self.counts.get(self.command, 0) + 1
        if not path.is_file():
            self.reply(404, {}, b"")
            return
        size, fault = path.stat().st_size, self.faults.next() if with_body else None
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = 0, size
        if asked and self.has_ranges:
            start, end = int(asked[1]), min(size, int(asked[2] or size) + 1)
        if start >= size:
            self.reply(416, {"Content-Range": f"bytes */{size}"}, b"")
            return
        with path.open("rb") as file:
            file.seek(start)
            body = file.read(end - start)
        tag = f'"{size}-{path.name}"'
        headers = {"ETag": tag, "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        if asked and self.has_ranges:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        status = 206 if "Content-Range" in headers else 200
        broken(self, fault, Answer(status, headers, body, with_body))

    def reply(self, status, headers, body, *, with_body=True):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *args):
        pass


class Answer(NamedTuple):
    """What a server says if nothing goes wrong."""

    status: int
    headers: dict[str, str]
    body: bytes
    with_body: bool


def broken(handler, fault, answer):
    """Answer, or fail to."""
    if fault == "busy":
        handler.reply(503, {"Retry-After": "0"}, b"<Error><Code>SlowDown</Code></Error>")
        return
    if fault == "stall":
        time.sleep(handler.faults.stall_s)
    if fault == "reset":
        handler.close_connection = True
        handler.connection.close()
        return
    if fault == "cut":
        handler.close_connection = True
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        handler.wfile.write(answer.body[: len(answer.body) // 2])
        return
    status, headers, body, with_body = answer
    if fault == "etag":
        headers = {name: value for name, value in headers.items() if name.lower() != "etag"}
        headers["ETag"] = '"other"'
    handler.reply(status, headers, body, with_body=with_body)


class Proxy(http.server.BaseHTTPRequestHandler):
    """What goes to an object store, with faults in the answers to reads."""

    protocol_version = "HTTP/1.1"
    upstream = ""
    faults = Faults()
    latency_s = 0.0
    #: Answers that are lost after the upstream server has done what was asked: keys that contain one of these, once each.
    lost: list[str]
    #: Whether conditions of conditional puts are dropped on the way.
    ignores_conditions = False
    #: A status that every answer has.
    refuses = 0

    def forward(self):
        time.sleep(self.latency_s)
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length) if length else None
        if self.refuses:
            self.reply(self.refuses, {}, b"<Error><Code>AccessDenied</Code></Error>")
            return
        upstream = http.client.HTTPConnection(self.upstream, timeout=30)
        upstream.request(self.command, self.request_path(), body, self.request_headers())
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        if self.command == "PUT" and (
            lost := [key for key in self.lost if key in urllib.parse.unquote(self.path)]
        ):
            self.lost.remove(lost[0])
            self.close_connection = True
            self.connection.close()
            return
        headers = self.answer_headers(answer)
        fault = self.faults.next() if self.command == "GET" else None
        if self.command == "HEAD":
            headers["Content-Length"] = answer.getheader("Content-Length", "0")
            self.send_response(answer.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
        else:
            broken(self, fault, Answer(answer.status, headers, content, True))

    def request_path(self):
        """What the upstream server is asked for."""
        return self.path

    def request_headers(self):
        """What the upstream server is told."""
        conditions = ("if-none-match", "x-goog-if-generation-match")
        dropped = ("host", *(conditions if self.ignores_conditions else ()))
        return {k: v for k, v in self.headers.items() if k.lower() not in dropped}

    def answer_headers(self, answer):
        """What is told of its answer: not how it was transferred."""
        dropped = (
            "connection",
            "content-length",
            "date",
            "keep-alive",
            "server",
            "transfer-encoding",
        )
        return {k: v for k, v in answer.getheaders() if k.lower() not in dropped}

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815 (the names that the base class calls)
    reply = Web.reply
    log_message = Web.log_message


@contextlib.contextmanager
def serving(handler, **settings):
    """A server of a handler with these settings, in threads of this process."""
    defaults = {"counts": {}} if issubclass(handler, Web) else {"lost": []}
    server = Server(("127.0.0.1", 0), type("Handler", (handler,), defaults | settings))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
