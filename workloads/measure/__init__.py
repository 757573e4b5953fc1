"""Measures operators and whole steps on a CUDA device, in the CSV formats that ``xpusim validate`` reads.

Needs torch with CUDA and nothing else of this project's dependencies.  ``python -m workloads.measure --help``.
"""
