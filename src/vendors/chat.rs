//! FLOOR 3: telling a chat channel what happened.
//!
//! The webhook's address is its only credential; it appears in no error and no log. Texts come
//! from tickets and runs: nothing in them may become a mention, a link or a layout of its own.

use serde_json::{Value, json};

use crate::http::{Client, Method, Quota, Request, VendorError};
use domain::effect::ChatMessage;
use domain::secret::Secret;

/// What Slack takes in a header, a section's text, and one of its fields. (contracts)
const SLACK_SECTION: usize = 3_000;
const SLACK_FIELD: usize = 2_000;
const SLACK_FIELDS: usize = 10;
const SLACK_FALLBACK: usize = 3_500;

/// What Teams takes as a whole is about 28 KB; the frame around our texts is small.
const TEAMS_BYTES: usize = 26_000;

/// A title is a line, not a text.
const TITLE: usize = 250;

/// Which service the webhook belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatKind {
    /// Slack.
    Slack,
    /// Microsoft Teams, through Workflows.
    Teams,
}

/// One chat webhook.
#[derive(Clone)]
pub struct ChatWebhook {
    client: Client,
    url: Secret,
    kind: ChatKind,
}

impl ChatWebhook {
    pub fn new(client: Client, url: Secret, kind: ChatKind) -> Self {
        Self { client, url, kind }
    }

    /// What is left of the webhook's allowance.
    pub fn quota(&self) -> Quota {
        self.client.quota()
    }

    /// Posts a message. The services take no id from us: repeated after a lost answer, it may
    /// appear twice.
    ///
    /// # Errors
    /// When the service did not take it. A permanent one means that the webhook is gone or wrong.
    pub async fn post(&self, message: &ChatMessage) -> Result<(), VendorError> {
        let body = match self.kind {
            ChatKind::Slack => slack(message),
            ChatKind::Teams => teams(message),
        };
        let request =
            Request::new("posting to the chat", Method::POST, self.url.expose()).json(&body);
        let response = self.client.send(&request).await?;
        match self.kind {
            // Slack says yes with these two letters and no otherwise, whatever the status.
            ChatKind::Slack if response.text().trim() != "ok" => {
                Err(response.status_error(422, &response.text()))
            }
            ChatKind::Slack | ChatKind::Teams => Ok(()),
        }
    }
}

fn slack(message: &ChatMessage) -> Value {
    let title = slack_text(&line(&message.title), TITLE * 2);
    let headline = match web_address(message) {
        // Inside a link, these would end it.
        Some(url) => format!("*<{}|{title}>*", slack_text(url, 2_000).replace('|', "%7C")),
        None => format!("*{title}*"),
    };
    let section =
        |text: String| json!({"type": "section", "text": {"type": "mrkdwn", "text": text}});
    let mut blocks = vec![section(headline)];
    if !message.facts.is_empty() {
        let fields: Vec<Value> = message
            .facts
            .iter()
            .take(SLACK_FIELDS)
            .map(|(name, value)| {
                let text = format!(
                    "*{}*\n{}",
                    slack_text(&line(name), 200),
                    slack_text(value, SLACK_FIELD - 300)
                );
                json!({"type": "mrkdwn", "text": text})
            })
            .collect();
        blocks.push(json!({"type": "section", "fields": fields}));
    }
    if !message.text.trim().is_empty() {
        blocks.push(section(slack_text(message.text.trim(), SLACK_SECTION)));
    }
    let fallback = match web_address(message) {
        Some(url) => format!("{} {url}", line(&message.title)),
        None => line(&message.title),
    };
    json!({"text": slack_text(&fallback, SLACK_FALLBACK), "blocks": blocks})
}

/// Escaped for Slack and cut to a length in characters, never within an escape.
fn slack_text(text: &str, limit: usize) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut room = limit.saturating_sub(1);
    for c in clean(text).chars() {
        let piece = match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            c => c.to_string(),
        };
        let length = piece.chars().count();
        if length > room {
            escaped.push('…');
            break;
        }
        room -= length;
        escaped += &piece;
    }
    escaped
}

fn teams(message: &ChatMessage) -> Value {
    let mut room = TEAMS_BYTES;
    let mut fit = |text: &str| {
        let fitted = teams_text(text, room);
        // In JSON a character may take six bytes where the text has one.
        room = room.saturating_sub(Value::from(fitted.as_str()).to_string().len());
        fitted
    };
    let title = fit(&cut(&line(&message.title), TITLE));
    let mut card = vec![json!({
        "type": "TextBlock", "text": title, "weight": "Bolder", "size": "Medium", "wrap": true,
    })];
    let facts: Vec<Value> = message
        .facts
        .iter()
        .take(20)
        .map(|(name, value)| json!({"title": fit(&cut(&line(name), 100)), "value": fit(&cut(value, 500))}))
        .collect();
    if !facts.is_empty() {
        card.push(json!({"type": "FactSet", "facts": facts}));
    }
    if !message.text.trim().is_empty() {
        card.push(json!({"type": "TextBlock", "text": fit(message.text.trim()), "wrap": true}));
    }
    let actions: Vec<Value> = web_address(message)
        .filter(|url| url.len() <= 1_000)
        .map(|url| json!({"type": "Action.OpenUrl", "title": "Open", "url": url}))
        .into_iter()
        .collect();
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "msteams": {"width": "Full"},
                "body": card,
                "actions": actions,
            },
        }],
    })
}

/// Escaped for the little Markdown that cards know, and cut to a length in bytes of JSON.
fn teams_text(text: &str, room: usize) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut used = 8;
    for c in clean(text).chars() {
        let mut piece = String::new();
        if matches!(c, '*' | '_' | '[' | ']' | '\\') {
            piece.push('\\');
        }
        piece.push(c);
        used += Value::from(piece.as_str()).to_string().len() - 2;
        if used > room {
            escaped.push('…');
            break;
        }
        escaped += &piece;
    }
    escaped
}

/// Without what hides or reorders text: control, invisible and bidirectional characters.
fn clean(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().filter(|c| !hidden(*c)).collect()
}

fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn web_address(message: &ChatMessage) -> Option<&str> {
    let url = message.title_url.as_deref()?;
    let web = url.starts_with("https://") || url.starts_with("http://");
    (web && !url.contains(char::is_whitespace)).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::test_client;
    use test_support::{StubReply, TestServer};

    async fn post(
        kind: ChatKind,
        status: u16,
        answer: &'static str,
    ) -> (TestServer, Result<(), VendorError>) {
        let server =
            TestServer::start(move |_, _| StubReply::Response(status, vec![], answer.to_owned()))
                .await;
        let url = Secret::new(format!("{}/services/SECRET", server.url));
        let outcome = ChatWebhook::new(test_client("chat"), url, kind)
            .post(&message())
            .await;
        (server, outcome)
    }

    #[tokio::test]
    async fn each_service_has_its_own_way_to_say_yes() {
        let (server, outcome) = post(ChatKind::Slack, 200, "ok").await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(server.requests()[0].json(), slack(&message()));
        let (server, outcome) = post(ChatKind::Teams, 202, "").await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(server.requests()[0].json(), teams(&message()));

        let (_, refused) = post(ChatKind::Slack, 200, "no_active_hooks").await;
        assert!(refused.unwrap_err().is_permanent());
        let (server, gone) = post(ChatKind::Slack, 404, "channel_not_found").await;
        let error = gone.unwrap_err();
        assert_eq!(
            error.to_string(),
            "posting to the chat: chat answered 404: channel_not_found"
        );
        assert_eq!(
            server.requests().len(),
            1,
            "a message is never sent twice by itself"
        );
        let (_, down) = post(ChatKind::Teams, 503, "").await;
        assert!(!down.unwrap_err().is_permanent());
    }

    fn message() -> ChatMessage {
        ChatMessage {
            title: "PR #12 opened for <!channel> & friends".into(),
            title_url: Some("https://github.com/o/r/pull/12".into()),
            facts: vec![("Repo".into(), "o/r".into())],
            text: "line *one*\nline <@U1>".into(),
        }
    }

    #[test]
    fn slack_mentions_nobody() {
        let body = slack(&message());
        assert_eq!(
            body["blocks"][0]["text"]["text"],
            "*<https://github.com/o/r/pull/12|PR #12 opened for &lt;!channel&gt; &amp; friends>*"
        );
        assert_eq!(body["blocks"][1]["fields"][0]["text"], "*Repo*\no/r");
        assert_eq!(
            body["blocks"][2]["text"]["text"],
            "line *one*\nline &lt;@U1&gt;"
        );
        assert!(!body.to_string().contains("<!") && !body.to_string().contains("<@"));
    }

    #[test]
    fn limits_hold_whatever_the_texts() {
        for filler in ["x", "&", "\u{1}", "\"", "𝄞", "_"] {
            let long = filler.repeat(50_000);
            let message = ChatMessage {
                title: long.clone(),
                title_url: None,
                facts: vec![(long.clone(), long.clone()); 30],
                text: long,
            };
            let body = slack(&message);
            for block in body["blocks"].as_array().unwrap() {
                let chars = |text: &Value| text.as_str().unwrap().chars().count();
                if let Some(fields) = block["fields"].as_array() {
                    assert!(fields.len() <= SLACK_FIELDS);
                    assert!(
                        fields
                            .iter()
                            .all(|field| chars(&field["text"]) <= SLACK_FIELD)
                    );
                } else {
                    assert!(chars(&block["text"]["text"]) <= SLACK_SECTION);
                }
            }
            let bytes = teams(&message).to_string().len();
            assert!(bytes <= 28_000, "{filler:?}: {bytes}");
        }
    }

    #[test]
    fn a_card_shows_text_as_text() {
        let body = teams(&message());
        let card = &body["attachments"][0]["content"];
        assert_eq!(card["version"], "1.4");
        assert_eq!(
            card["body"][0]["text"],
            "PR #12 opened for <!channel> & friends"
        );
        assert_eq!(card["body"][2]["text"], "line \\*one\\*\nline <@U1>");
        assert_eq!(card["actions"][0]["url"], "https://github.com/o/r/pull/12");
        let mut odd = message();
        odd.title_url = Some("javascript:alert(1)".into());
        assert_eq!(
            teams(&odd)["attachments"][0]["content"]["actions"],
            json!([])
        );
    }
}
