"""NVIDIA GPUs, by way of the CUDA driver.

    driver.py   the driver's calls, errors, contexts; nothing is loaded before a GPU is first asked for
    memory.py   buffers and the pool they come from
    copies.py   between host and device, and between devices
    launch.py   loading code, launching kernels
    words.py    words of host memory that kernels write to
    streams.py  events, and order between our stream and others'

Each device has one context (its primary one, which CUDA's other users share) and one stream, on which everything
happens in the order it was asked for.  Every function here takes a `CudaDevice` (see ../device.py).
"""
