"""From hypotheses to the cause that is told of some wrong values."""
