"""A small inference engine: paged keys and values, continuous batching, 8- and 4-bit weights.  See the README here."""
