"""Runs the Verilog of ``rtl/`` on operands of its own and holds it against the cycle model.

Needs cocotb and an HDL simulator, so nothing here is imported by ``hw_models`` itself.  ``cases`` makes operands and
the words to expect, ``bench`` drives a top from inside the simulator, ``runner`` starts the simulator, ``check``
compares.
"""
