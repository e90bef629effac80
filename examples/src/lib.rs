//! Programs people run.
