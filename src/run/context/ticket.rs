//! What people wrote on the ticket, as far as the run could fetch it.

use std::path::PathBuf;

use domain::ticket_context::TicketContext;

/// Comments, attachments, and questions with their answers. All of it is untrusted.
#[derive(Debug, Default)]
pub(crate) struct TicketMaterial {
    /// Texts, and the attachments that the run does not have.
    pub context: TicketContext,
    /// Attachments in the scratch folder.
    pub attachments: Vec<SavedAttachment>,
    /// Work of the run that asked the last question.
    pub earlier_work: EarlierWork,
}

/// Attachment in the scratch folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SavedAttachment {
    /// Name that people gave it.
    pub title: String,
    /// File that the agent can open.
    pub path: PathBuf,
}

/// Work of the run that asked the last question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EarlierWork {
    /// There is none.
    #[default]
    None,
    /// The work tree contains it.
    Applied,
    /// It did not apply, so the run starts over.
    Dropped,
}
