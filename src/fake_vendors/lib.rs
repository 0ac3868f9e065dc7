//! A town of stand-in vendors on loopback, for the demo and the tests.
//!
//! Speaks the vendors' wire formats over real HTTP on one port, with models that live in one folder
//! and survive `kill -9`; dispatched workflows really run. It imports nothing of the rest of this
//! crate and shares no types with it: what the clients believe about a vendor and what the vendor
//! does are written down twice, on purpose.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod chat;
pub(crate) mod clock;
mod faults;
mod github;
mod graphql;
mod http;
mod jira;
mod linear;
mod machines;
mod page;
mod post;
mod requests;
pub mod scripted_agent;
mod serve;
mod state;
pub mod stories;
#[cfg(test)]
mod tests;
mod town;

pub use self::chat::{Chat, Message};
pub use self::faults::{Dial, Fault, Faults, Vendor};
pub use self::github::{
    CheckReport, CommentSnapshot as PullCommentSnapshot, CommitSnapshot, Delivered, GitHub, Means,
    PullSnapshot, Repo, RunSnapshot,
};
pub use self::jira::{FieldChange, Jira, JiraCommentSnapshot, JiraTicket, JiraTicketSnapshot};
pub use self::linear::{
    CommentSnapshot, LabelChange, Linear, LinkSnapshot, Ticket, TicketSnapshot,
};
pub use self::machines::MachineSnapshot;
pub use self::machines::docker::DockerEngine;
pub use self::machines::fly::FlyMachines;
pub use self::post::{HookDial, TicketEvent};
pub use self::requests::{LoggedRequest, RequestLog};
pub use self::town::{Town, TownOptions};
