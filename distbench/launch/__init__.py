"""Starts the tasks of a cluster, watches them and ends them; knows no TensorFlow."""
