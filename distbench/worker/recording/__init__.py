"""A job of the user's own, recorded."""
