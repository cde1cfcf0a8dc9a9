"""The ``kinograph`` command; ``python -m kinograph`` is the same."""

import signal
import sys

from kinograph import _core


def main() -> int:
    """Run the command with this process's arguments and give its exit code."""
    # Python's own handler would wait until the command returns: Ctrl-C must end it now.
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return _core.run_cli(sys.argv)
    finally:
        signal.signal(signal.SIGINT, previous)


if __name__ == "__main__":
    sys.exit(main())
