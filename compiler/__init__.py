"""Expression graph -> kernels -> block IR -> LLVM IR -> machine code.  Imports neither blockarray nor the runtime."""
