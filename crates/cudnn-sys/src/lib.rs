//! cuDNN raw calls, loaded at run time.
