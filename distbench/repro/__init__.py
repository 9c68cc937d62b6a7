"""Writes a script that shows a finding with TensorFlow and NumPy alone."""
