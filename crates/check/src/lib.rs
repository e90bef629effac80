//! Proves a schedule safe and faithful to its program.
