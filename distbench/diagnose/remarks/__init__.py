"""What is told of a run that no wrong value of a step shows."""
