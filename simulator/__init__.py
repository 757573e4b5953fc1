"""Core of xpusim: operator graph, hardware classes, event engine and results.  Loads no torch and no pyplot."""
