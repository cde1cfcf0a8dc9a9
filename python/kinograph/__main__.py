"""The ``kinograph`` command, also available as ``python -m kinograph``."""

import signal
import sys

from kinograph import _core


def main() -> int:
    """Run the command with this process's arguments and return its exit code."""
    # Python's own handler would only run once the command returns; Ctrl-C must stop it immediately.
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return _core.run_cli(sys.argv)
    finally:
        signal.signal(signal.SIGINT, previous)


if __name__ == "__main__":
    sys.exit(main())
