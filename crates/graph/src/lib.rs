//! Ops, shape rules, the layer graph, linear order, aliasing.
