//! Figures and peers.
