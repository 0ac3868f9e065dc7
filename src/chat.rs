//! FLOOR 3: telling a chat channel what happened.
//!
//! The webhook's address is its only credential; it appears in no error and no log.

use serde::{Deserialize, Serialize};

use crate::domain::secret::Secret;
use crate::wire::{Client, VendorError};

/// Which service the webhook belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatKind {
    /// Slack.
    ChannelA,
    /// Microsoft Teams, through Workflows.
    ChannelB,
}

/// What to tell, in no service's own format.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatMessage {
    pub title: String,
    #[serde(default)]
    pub title_url: Option<String>,
    #[serde(default)]
    pub facts: Vec<(String, String)>,
    #[serde(default)]
    pub text: String,
}

/// One chat webhook.
#[derive(Clone)]
pub struct Chat {
    wire: Client,
    url: Secret,
    kind: ChatKind,
}

impl Chat {
    pub fn new(wire: Client, url: Secret, kind: ChatKind) -> Self {
        Self { wire, url, kind }
    }

    pub async fn post(&self, message: &ChatMessage) -> Result<(), VendorError> {
        todo!(
            "{message:?}{:?}{:?}{}",
            self.kind,
            self.url,
            self.wire.vendor()
        )
    }
}
