"""The ``kinograph`` command, also available as ``python -m kinograph``."""

import signal
import sys

from kinograph import _core
from kinograph._errors import KinographError


def main() -> int:
    """Run the command with this process's arguments and return its exit code."""
    ray = _ray_address(sys.argv[1:])
    if ray is not None:
        return _run_on_ray(*ray)
    # Python's own handler would only run once the command returns; Ctrl-C must stop it immediately.
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return _core.run_cli(sys.argv)
    finally:
        signal.signal(signal.SIGINT, previous)


def _ray_address(arguments: list[str]) -> tuple[list[str], str] | None:
    """Find ``--ray ADDRESS`` of a command; return the other arguments and the address."""
    for place, argument in enumerate(arguments):
        name, equals, address = argument.partition("=")
        if argument == "--":
            break
        if name != "--ray" or "--help" in arguments or "-h" in arguments:
            continue
        if equals:
            return arguments[:place] + arguments[place + 1 :], address
        if place + 1 < len(arguments):
            return arguments[:place] + arguments[place + 2 :], arguments[place + 1]
    return None


def _run_on_ray(arguments: list[str], address: str) -> int:
    try:
        from kinograph import _ray_command  # noqa: PLC0415 (it needs a package that is optional)
    except ImportError as error:
        print(f"error: --ray needs Ray: pip install 'kinograph[ray]' ({error})", file=sys.stderr)
        return 1
    try:
        return _ray_command.run_command(arguments, address)
    except (KinographError, ConnectionError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
