"""Lab 11: how large the array, the scratchpad and the memory bandwidth have to be for a given model."""
