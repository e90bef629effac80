//! The front door: facade library and the vdnn command.
