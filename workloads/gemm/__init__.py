"""Lab 7: a ladder of matrix products, what each step moves between the levels of memory, and what that costs."""
