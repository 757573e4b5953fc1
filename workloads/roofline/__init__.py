"""Lab 5: which resource binds a model on a chip, worked out with the roofline before anything is simulated."""
