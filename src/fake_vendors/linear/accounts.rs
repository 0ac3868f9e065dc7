//! Members, apps and external persons, as the API shows them.

use super::resolvers::{Field, Node, leaf};
use crate::author::FakeAuthor;
use crate::clock::iso;
use crate::graphql::Resolved;

/// Returns the id of an account.
pub(crate) fn id(author: &FakeAuthor) -> String {
    match author {
        FakeAuthor::Service => "b9b1f4f2-5d8f-4c1c-9a53-6a1a2f3c0002".to_owned(),
        FakeAuthor::Person(name) if name == "robin" => {
            "b9b1f4f2-5d8f-4c1c-9a53-6a1a2f3c0003".to_owned()
        }
        FakeAuthor::Person(name) => format!("user-{name}"),
        FakeAuthor::App(name) => format!("app-{name}"),
        FakeAuthor::External(name) => format!("external-{name}"),
    }
}

fn short_name(author: &FakeAuthor) -> &str {
    match author {
        FakeAuthor::Service => "agent-implement",
        FakeAuthor::Person(name) | FakeAuthor::App(name) | FakeAuthor::External(name) => name,
    }
}

/// Returns the user of a comment or a change. An app acts as a user of its own, an external person as none.
pub(super) fn user_of(author: &FakeAuthor) -> Field {
    match author {
        FakeAuthor::External(_) => Resolved::Null,
        author => Resolved::Node(Node::User(author.clone())),
    }
}

pub(super) fn bot_of(author: &FakeAuthor) -> Field {
    match author {
        FakeAuthor::App(_) => Resolved::Node(Node::Actor("ActorBot", author.clone())),
        _ => Resolved::Null,
    }
}

pub(super) fn external_of(author: &FakeAuthor) -> Field {
    match author {
        FakeAuthor::External(_) => Resolved::Node(Node::Actor("ExternalUser", author.clone())),
        _ => Resolved::Null,
    }
}

/// Returns a field of a `User`.
pub(super) fn user(author: &FakeAuthor, base_url: &str, name: &str) -> Field {
    let short = short_name(author);
    match name {
        "id" => leaf(id(author)),
        "name" => leaf(author.display_name()),
        "displayName" => leaf(short),
        "email" => leaf(format!("{short}@sandbox.example")),
        "active" => leaf(true),
        "admin" => leaf(matches!(author, FakeAuthor::Person(_))),
        "isMe" => leaf(author.is_service()),
        "app" => leaf(matches!(author, FakeAuthor::App(_))),
        "guest" => leaf(false),
        "url" => leaf(format!("{base_url}/profiles/{short}")),
        "organization" => Resolved::Node(Node::Organization),
        "createdAt" | "updatedAt" => leaf(iso(0)),
        _ => Resolved::Null,
    }
}

/// Returns a field of an `ActorBot` or an `ExternalUser`.
pub(super) fn actor(author: &FakeAuthor, name: &str) -> Field {
    match name {
        "id" => leaf(id(author)),
        "name" | "displayName" => leaf(author.display_name()),
        "type" => leaf("integration"),
        "createdAt" | "updatedAt" => leaf(iso(0)),
        _ => Resolved::Null,
    }
}
