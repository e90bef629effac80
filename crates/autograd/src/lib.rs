//! Extends a graph with backward and update nodes.
