"""Whether the CUDA driver of this process has been initialised."""

from __future__ import annotations

import ctypes
import os

LIBRARY = "libcuda.so.1"
_NOT_INITIALIZED = 3
"""What every call answers before `cuInit` (CUDA Driver API, CUresult)."""


def is_driver_initialised() -> bool:
    """Ask the driver itself, if it has been loaded; this neither loads nor starts it.

    A library that is only loaded survives a fork, as TensorFlow's import may load it.
    """
    try:
        driver = ctypes.CDLL(LIBRARY, mode=getattr(os, "RTLD_NOLOAD", 0))
    except OSError:
        return False
    count = ctypes.c_int()
    return int(driver.cuDeviceGetCount(ctypes.byref(count))) != _NOT_INITIALIZED
