//! Tests of costs and simulation, on numbers worked out by hand.

mod builder;
mod costs;
mod machines;
mod profiles;
mod properties;
mod simulation;
mod vgg16;
