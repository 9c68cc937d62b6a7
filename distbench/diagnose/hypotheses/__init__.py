"""Causes, a family to a file, and their register."""
