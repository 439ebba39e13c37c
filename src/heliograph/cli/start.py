"""Where the command `heliograph` begins: it says nothing if Ctrl-C comes before there is anything to say.

In:    arguments.
Out:   an exit code; 130 if it was interrupted.
State: none.
Not here: the commands (main.py), whose import takes long enough for somebody to press Ctrl-C.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130  # as of shape.py, which cannot be imported before the handler below is there


def main() -> None:
    """Load the command line and run it."""
    try:
        from heliograph.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
