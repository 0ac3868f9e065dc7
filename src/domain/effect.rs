//! effect
