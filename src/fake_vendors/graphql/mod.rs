//! GraphQL server shared by the fake vendors: schema, validation, query plan, execution.
//!
//! Knows no vendor. A vendor provides its schema and a `Resolver` for single fields. Queries are
//! validated against the schema before anything is executed, so a misspelled field fails as it
//! would at the real vendor.

mod execution;
mod plan;
mod schema;

pub(crate) use execution::{FieldError, Resolved, Resolver, execute};
pub(crate) use plan::{Operation, QueryPlan, SelectedField};
pub(crate) use schema::Schema;
