//! Shared code of the benchmarks.

#![allow(dead_code, reason = "each benchmark uses a part of the module")]

pub mod fixtures;
pub mod load;
pub mod peer;
pub mod service;
pub mod table;
pub mod vendor_setup;
