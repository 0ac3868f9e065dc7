//! Changes by operators. Each function stores a change together with its audit entry.

pub mod connections;
pub mod dedup;
pub mod downloads;
pub mod mapping_check;
pub mod mappings;
pub mod outbox;
pub mod parked;
pub mod poll;
pub mod projects_file;
pub mod runner_mode;
pub mod secrets;
pub mod settings;
pub mod sign_in;
