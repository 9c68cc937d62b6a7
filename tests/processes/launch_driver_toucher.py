"""A module whose import initialises the CUDA driver, as some libraries do."""

import ctypes

ctypes.CDLL("libcuda.so.1").cuInit(0)
