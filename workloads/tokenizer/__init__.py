"""Lab 2: byte-level BPE, written to be read, and what the size of a vocabulary costs on a chip.  See the README here.

The modules that compile (`train`, `Tokenizer`) are imported from their own files, so that importing this loads little.
"""
