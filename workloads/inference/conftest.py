"""Keeps pytest, which imports every file to look for examples, away from what needs Triton or numba."""

from importlib.util import find_spec

_NEED_TRITON = ["kernels_attention.py", "kernels_linear.py", "kernels_rows.py", "launch.py", "tuning.py",
                "device_checks.py", "device_run.py"]  # fmt: skip
collect_ignore = [*([] if find_spec("triton") else _NEED_TRITON), *([] if find_spec("numba") else ["compiled.py"])]
