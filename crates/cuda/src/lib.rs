//! The CUDA device: cuDNN, cuBLAS, NVRTC kernels, arenas, streams, events.
