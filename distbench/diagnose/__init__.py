"""Turns wrong values into findings; pure functions."""
