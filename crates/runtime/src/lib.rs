//! Device trait, executor loop, Null, Chaos and Cpu devices.
