"""What the bench can ask a fresh process to do, a file for each kind of run."""
