"""The application that spark-submit runs: the command line, as a file.

In:    the arguments of the command.
Out:   as of `heliograph`.
State: none.
Not here: the commands (main.py).

Python searches the folder of such a file for modules first, where ours would hide others of the same name. So that
folder is removed from the search path.
"""

import sys

if sys.path[0] == __file__.rpartition("/")[0]:
    del sys.path[0]

from heliograph.cli.main import main

if __name__ == "__main__":
    main()
