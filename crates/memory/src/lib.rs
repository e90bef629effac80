//! The paper and beyond: liveness, gaps, policies, placement, emission.
