"""Runs commands for harness.py and measures them: a line of JSON in, a line of JSON out.

A separate, small process: Linux counts the memory of the process that starts a command into the command's peak,
and a test that has built a large file stays large forever.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading


def run(command: list[str], hang_s: float, address_space: int) -> dict[str, object]:
    """Run a command until it ends or hangs."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (address_space, address_space))
    hung = threading.Event()

    def stop() -> None:
        hung.set()
        process.kill()

    timer = threading.Timer(hang_s, stop)
    timer.start()
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "code": process.returncode,
        "output": output.decode(errors="replace"),
        "peak_bytes": usage.ru_maxrss * 1024,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "hung": hung.is_set(),
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(*json.loads(line))), flush=True)
