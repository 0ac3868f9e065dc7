//! What the benchmarks share: a table, a load, the service, and the programs beside it.

#![allow(dead_code, reason = "each benchmark uses a part")]

pub mod fixtures;
pub mod load;
pub mod peer;
pub mod service;
pub mod table;
pub mod vendor_setup;
