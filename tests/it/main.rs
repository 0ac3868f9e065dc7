//! The one integration test binary.
#![allow(clippy::unwrap_used)]

mod api;
mod floors;
mod world;

mod implementation;

mod runner_api;
