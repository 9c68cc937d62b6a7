"""Two recorded runs, of which nobody knows which one is right."""
