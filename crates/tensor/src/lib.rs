//! Shapes, dtypes, layouts, host tensors, counter-based random numbers.
