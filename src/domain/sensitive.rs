//! The sensitive-file guard's rules.
