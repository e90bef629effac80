//! What users compose: layers, parameters, initial values.
