"""The command line: the one place that imports everything, each command only when it is used."""
