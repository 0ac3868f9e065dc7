//! Fake vendors on loopback, for the demo and the tests.
//!
//! They serve the vendors' wire formats over real HTTP on one port. All state lives in one folder
//! and survives `kill -9`. Dispatched workflows really run. The crate imports nothing of the rest of
//! the workspace and shares no types with it: a client's view of a vendor's API and the fake
//! vendor's are written independently on purpose, so that a mistake in one of them fails a test.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod author;
mod bucket;
mod chat;
pub(crate) mod clock;
mod contract;
pub mod demo;
mod faults;
mod github;
mod graphql;
mod html_page;
mod http;
mod http_server;
mod instance;
mod jira;
mod linear;
mod machines;
mod persistence;
mod request_log;
pub mod scripted_agent;
#[cfg(test)]
mod tests;
mod uploads;
mod webhook_sender;

pub use self::author::FakeAuthor;
pub use self::bucket::{BucketRefusal, FakeBucket, FakeBucketKey};
pub use self::chat::{FakeChat, ReceivedChatMessage};
pub use self::faults::{FakeService, FaultInjector, FaultRates, InjectedFault};
pub use self::github::{
    ArchiveEntry, BranchProtection, CheckKind, CheckReport, CommitSnapshot, FakeGitHub, FakeIssue,
    FakeRepo, IssueLabelChange, IssueSnapshot, PullCommentSnapshot, PullSnapshot, RunSnapshot,
    zip_archive,
};
pub use self::instance::{FakeVendors, FakeVendorsOptions};
pub use self::jira::{
    FakeJira, FieldHistoryEntry, JiraCommentSnapshot, JiraTicket, JiraTicketSnapshot,
    SelectFieldSnapshot,
};
pub use self::linear::{
    FakeLinear, LabelHistoryEntry, LinearCommentSnapshot, LinearLinkSnapshot, LinearTicket,
    LinearTicketSnapshot,
};
pub use self::machines::docker::FakeDockerEngine;
pub use self::machines::fly::FakeFlyMachines;
pub use self::machines::image_build::BuiltImage;
pub use self::machines::kubernetes::{FakeKubernetes, PodProblem};
pub use self::machines::{MachineHost, MachineSnapshot};
pub use self::request_log::{LoggedRequest, RequestLog};
pub use self::uploads::FakeUpload;
pub use self::webhook_sender::{DeliveredWebhook, WebhookFaults, WebhookSender};
