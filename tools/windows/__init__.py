"""The client's tests on Windows, on a Linux machine: `nox -s windows`.

`build` makes a Python for Windows of packages, `wine` runs it, and `python -m tools.windows` runs the tests.
"""
