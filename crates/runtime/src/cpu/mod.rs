//! The CPU device and its kernels, one file an op.
