"""What came out of earlier nights, and what changed since."""
