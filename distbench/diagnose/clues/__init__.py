"""What a hypothesis goes by: wrong values, and what else was seen of their step."""
