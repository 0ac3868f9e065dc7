//! What people wrote on a ticket, as the run of the ticket gets it: comments, attachments, and the answers to
//! questions of earlier runs. All of it is untrusted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::question::Exchange;
use super::ticket_comment::ContextComment;

/// Maximum number of attachments that a run gets.
pub const MAX_ATTACHMENTS: usize = 5;

/// Maximum size of an attachment, in bytes.
pub const MAX_ATTACHMENT_BYTES: usize = 5 * 1024 * 1024;

/// What people wrote on a ticket, for a run: the body of `GET /runner/ticket-context`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TicketContext {
    /// Newest comments by people, oldest first.
    pub comments: Vec<ContextComment>,
    /// Number of older comments by people that are left out.
    pub left_out_comments: usize,
    /// Attachments that the run can fetch.
    pub attachments: Vec<ContextAttachment>,
    /// Names of attachments that the run does not get, each with the reason.
    pub left_out_attachments: Vec<LeftOutAttachment>,
    /// Questions of earlier runs with their answers, oldest first.
    pub exchanges: Vec<Exchange>,
    /// Work of the run that asked the last question, as a git patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Whether that work is too large for the dispatch, so that the run starts over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub patch_left_out: bool,
}

/// Attachment that a run can fetch with `GET /runner/attachments/:id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextAttachment {
    /// Id in the API of this service.
    pub id: String,
    /// Name that people gave it.
    pub title: String,
}

/// Attachment that a run does not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftOutAttachment {
    /// Name that people gave it.
    pub title: String,
    /// Reason, as a sentence without a full stop.
    pub reason: String,
}

/// Maximum size of the context in a dispatch, in bytes. Title, description and plan need the rest of the inputs.
const MAX_DISPATCH_BYTES: usize = 32_000;

impl TicketContext {
    /// Returns the context for a run that cannot reach the service: without attachments, and with as many of the
    /// newest comments as a dispatch can carry. Work that is too large is left out.
    pub fn for_dispatch(mut self) -> Self {
        let reason = "this run cannot reach the service".to_owned();
        let attachments = std::mem::take(&mut self.attachments).into_iter();
        let left_out = attachments.map(|attachment| LeftOutAttachment {
            title: attachment.title,
            reason: reason.clone(),
        });
        self.left_out_attachments.extend(left_out);
        while self.is_too_large() && !self.comments.is_empty() {
            self.comments.remove(0);
            self.left_out_comments += 1;
        }
        if self.is_too_large() {
            self.patch_left_out = self.patch.take().is_some();
        }
        while self.is_too_large() && self.exchanges.len() > 1 {
            self.exchanges.remove(0);
        }
        self
    }

    fn is_too_large(&self) -> bool {
        serde_json::to_string(self).is_ok_and(|text| text.len() > MAX_DISPATCH_BYTES)
    }

    /// Returns whether a run has nothing to read beside the ticket.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Kind of the content of an attachment that an agent can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentKind {
    /// PNG image.
    Png,
    /// JPEG image.
    Jpeg,
    /// WebP image.
    WebP,
    /// GIF image.
    Gif,
    /// PDF document.
    Pdf,
    /// UTF-8 text.
    Text,
}

impl ContentKind {
    /// Returns the ending of file names.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::WebP => "webp",
            Self::Gif => "gif",
            Self::Pdf => "pdf",
            Self::Text => "txt",
        }
    }
}

/// Returns the kind of a content by the content alone. `None` for everything that is neither an image nor a text.
pub fn content_kind(content: &[u8]) -> Option<ContentKind> {
    let is_webp = content.starts_with(b"RIFF") && content.get(8..12) == Some(b"WEBP");
    if is_webp {
        return Some(ContentKind::WebP);
    }
    let formats: [(&[u8], ContentKind); 5] = [
        (b"\x89PNG\r\n\x1a\n", ContentKind::Png),
        (b"\xff\xd8\xff", ContentKind::Jpeg),
        (b"GIF87a", ContentKind::Gif),
        (b"GIF89a", ContentKind::Gif),
        (b"%PDF-", ContentKind::Pdf),
    ];
    let found = formats.iter().find(|(start, _)| content.starts_with(start));
    if let Some((_, kind)) = found {
        return Some(*kind);
    }
    let text = std::str::from_utf8(content).ok()?;
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{c}');
    (!text.is_empty() && text.chars().all(is_plain)).then_some(ContentKind::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispatch_carries_a_bounded_context() {
        let comment = |number: u64| ContextComment {
            author: "Kim".into(),
            at: crate::time::Timestamp::from_millis(number),
            body: "x".repeat(4_000),
        };
        let context = TicketContext {
            comments: (1..=4).map(comment).collect(),
            attachments: vec![ContextAttachment {
                id: "a".into(),
                title: "shot.png".into(),
            }],
            patch: Some("p".repeat(20_000)),
            ..TicketContext::default()
        };
        let sent = context.clone().for_dispatch();
        assert_eq!((sent.comments.len(), sent.left_out_comments), (2, 2));
        assert_eq!(sent.comments[1], comment(4));
        assert!(sent.patch.is_some() && !sent.patch_left_out);
        assert_eq!(sent.left_out_attachments[0].title, "shot.png");
        let large = TicketContext {
            patch: Some("p".repeat(200_000)),
            ..context
        };
        let sent = large.for_dispatch();
        assert!(sent.patch.is_none() && sent.patch_left_out);
    }

    #[test]
    fn the_content_decides_its_kind() {
        let rows: [(&[u8], Option<ContentKind>); 9] = [
            (b"\x89PNG\r\n\x1a\nrest", Some(ContentKind::Png)),
            (b"RIFF\x04\0\0\0WEBPVP8 ", Some(ContentKind::WebP)),
            (b"RIFF\x04\0\0\0WAVEfmt ", None),
            (b"GIF89a", Some(ContentKind::Gif)),
            (b"%PDF-1.7", Some(ContentKind::Pdf)),
            (
                "# Überschrift\r\n\ttext".as_bytes(),
                Some(ContentKind::Text),
            ),
            (b"PK\x03\x04", None),
            (b"text with \0", None),
            (b"", None),
        ];
        for (content, kind) in rows {
            assert_eq!(content_kind(content), kind, "{content:?}");
        }
    }
}
