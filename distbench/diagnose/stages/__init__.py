"""Which wrong values of a step begin, which follow, and which no outcome shows."""
