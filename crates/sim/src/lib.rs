//! Cost models, machine descriptions, discrete-event run of a schedule.
