"""Holds observed values against expected ones; pure NumPy."""
