//! The one integration test binary.
#![allow(clippy::unwrap_used)]

mod api;
mod floors;

mod runner_api;
