"""The one part of the package that is compiled. It is optional: without a compiler, numpy takes its place."""

from setuptools import Extension, setup

KERNELS = Extension(
    "heliograph.matching.boxes._kernels",
    ["src/heliograph/matching/boxes/_kernels.c"],
    extra_compile_args=["-O3"],
    py_limited_api=True,  # one binary for Python 3.11 and all after it
    optional=True,
)

setup(ext_modules=[KERNELS], options={"bdist_wheel": {"py_limited_api": "cp311"}})
