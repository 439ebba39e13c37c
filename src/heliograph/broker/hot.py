"""The hot path in the form that this process uses: compiled if possible, else in Python. Both do the same.

In:    what is installed, and the environment variable HELIOGRAPH_KERNELS (kernels.py).
Out:   scan, frames_of; is_native, by which shortcut.py and routes.py choose their own form.
State: none.
Not here: the forms themselves (_native.c; wire/scan.py, shortcut.py, routes.py).
"""

from __future__ import annotations

from heliograph import kernels
from heliograph.wire import scan as python

try:
    from heliograph.broker import _native as native
except ImportError:  # there was no compiler when this was installed
    is_native = False
else:
    is_native = kernels.wanted() in (None, "native")

scan = native.scan if is_native else python.scan
frames_of = native.frames_of if is_native else python.frames_of
