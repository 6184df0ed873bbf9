"""Tools around kernels written by hand."""
