//! The compiled iteration as plain data.
