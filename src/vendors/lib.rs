//! Clients of the external services: ticketing systems, the repository host, chat and session hosts.
//! All of them use the HTTP client in [`http`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod chat;
pub mod http;
pub mod object_store;
pub mod scm;
pub mod session_hosts;
pub mod ticketing;
