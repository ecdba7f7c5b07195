"""The console script.

It stands beside the package because importing `mference` takes a while, and Ctrl-C must already
end the program in one line then.
"""

import os
import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    from mference.cli import main as command_line

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command_line()
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> None:
    # No exception: an extension module that is being imported may swallow or rename it.
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"mference: interrupted\n")
    os._exit(INTERRUPTED)
