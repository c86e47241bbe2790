"""Search space, search, history and recommendation."""
