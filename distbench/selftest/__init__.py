"""The bench checked by itself: every seeded fault against its expected diagnosis."""
