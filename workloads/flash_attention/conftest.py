"""Keeps pytest, which imports every file to look for examples, away from what needs Triton, which only Linux has."""

from importlib.util import find_spec

_NEED_TRITON = ["kernels.py", "kernels_backward.py", "kernels_decode.py", "launch.py", "device_run.py"]
collect_ignore = [] if find_spec("triton") else _NEED_TRITON
