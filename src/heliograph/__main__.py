"""`python -m heliograph`, and the application that spark-submit runs: the command line.

In:    the arguments of the command.
Out:   as `heliograph`.
State: none.
Not here: the commands (cli/).

spark-submit takes a file, not a module. Python then looks for modules beside that file first, where ours would hide
others of the same name: that place is taken out.
"""

import sys
from pathlib import Path

sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]

from heliograph.cli.main import main  # noqa: E402 the line above comes first

if __name__ == "__main__":
    main()
