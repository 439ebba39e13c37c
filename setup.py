"""The parts that are compiled. They are optional: without a compiler, Python and numpy take their place."""

from setuptools import Extension, setup

COMPILED = ("matching/boxes/_kernels", "broker/_native")

setup(
    ext_modules=[
        Extension(
            f"heliograph.{path}".replace("/", "."),
            [f"src/heliograph/{path}.c"],
            extra_compile_args=["-O3"],
            py_limited_api=True,  # one binary for Python 3.11 and all after it
            optional=True,
        )
        for path in COMPILED
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
