"""Kernels written by hand, in the block language: launching, tuning, and putting them into the lazy graph."""
