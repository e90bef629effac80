//! From a model and a policy to a training loop.
