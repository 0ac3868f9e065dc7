//! comments
