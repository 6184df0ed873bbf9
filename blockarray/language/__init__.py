"""The block language: `import blockarray.language as tl`."""
