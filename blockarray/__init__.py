"""NumPy-style arrays that run lazily, as fused kernels."""
