"""Lab 9: what an ML compiler does, by one fusion rule from end to end and by a small MLIR dialect."""
