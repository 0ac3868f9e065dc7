//! GraphQL as a vendor's server reads it: schema, validation, plan, execution.
//!
//! Knows no vendor. A vendor brings its schema text and a `Graph` that answers single fields;
//! everything between the query text and those fields happens here. Queries are checked against
//! the schema *before* anything runs, so a client's misspelling fails as it would in the wild.

mod plan;
mod run;
mod schema;

pub(crate) use plan::{Operation, Plan};
pub(crate) use run::{Failure, Graph, Resolved, execute};
pub(crate) use schema::Schema;
