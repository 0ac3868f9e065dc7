//! The admin API: one file a resource, named as its path.
//!
//! The order on every route is token, body, lookup, rule. Without an access code none of it exists.

use super::parts::{Routes, one_of};
use crate::app::App;

/// Every admin route.
pub fn routes(_app: &App) -> Routes {
    one_of([])
}
