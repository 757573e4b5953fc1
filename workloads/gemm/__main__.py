"""``python -m workloads.gemm device-run --out FOLDER``: measure the ladder on a CUDA device."""

import sys


def main() -> int:
    """Run one command and return its exit code."""
    from workloads.gemm.device_run import main as device_run  # noqa: PLC0415  needs torch

    if sys.argv[1:2] == ["device-run"]:
        return device_run(sys.argv[2:])
    sys.stderr.write("python -m workloads.gemm device-run --out FOLDER\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
