//! Clients of everything outside: ticketing systems, the repository host, chat and the hosts of
//! sessions, over one HTTP client.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod chat;
pub mod http;
pub mod scm;
pub mod session_hosts;
pub mod ticketing;
