//! GraphQL as a vendor's server reads it: schema, validation, plan, execution.
//!
//! Knows no vendor. A vendor brings its schema text and a `Graph` that answers single fields;
//! everything between the query text and those fields happens here. Queries are checked against
//! the schema *before* anything runs, so a client's misspelling fails as it would in the wild.

mod execution;
mod plan;
mod schema;

pub(crate) use execution::{FieldError, Resolved, Resolver, execute};
pub(crate) use plan::{Operation, QueryPlan};
pub(crate) use schema::Schema;
