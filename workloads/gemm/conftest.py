"""Keeps pytest, which imports every file to look for examples, away from what only Linux with Triton can import."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["kernels.py"]
