"""Devices, memory, launch and caches.  Imports neither blockarray nor the compiler."""
