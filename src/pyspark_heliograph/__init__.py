"""Makes ``format("heliograph")`` known to PySpark, which looks for a package of this name. All code is in heliograph.

In:    nothing.
Out:   DefaultSource, which PySpark looks for.
State: none.
Not here: the source and sink (heliograph/pipeline/source.py, sink.py).
"""

from heliograph.pipeline.source import HeliographSource as DefaultSource

__all__ = ["DefaultSource"]
