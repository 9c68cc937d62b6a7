"""What runs inside a task: the only place that imports TensorFlow or Keras."""
