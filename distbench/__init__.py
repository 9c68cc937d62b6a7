"""A test bench for distributed training in TensorFlow."""
