//! Chat webhooks of Slack and Microsoft Teams.
//!
//! The webhook's address is its only credential. It must appear in no error and no log. Texts come from
//! tickets and runs and are untrusted: the sanitizer escapes them, so that they cannot create mentions, links or
//! formatting.

use serde_json::{Value, json};

use crate::http::{Availability, Client, Method, Quota, Request, VendorError};
use domain::effect::ChatMessage;
use domain::sanitize::{ELLIPSIS, single_line, slack_text, teams_text, truncate_chars};
use domain::secret::Secret;

/// Maximum length of a section's text in Slack, in characters.
const SLACK_SECTION: usize = 3_000;
/// Maximum length of a section's field in Slack, in characters.
const SLACK_FIELD: usize = 2_000;
/// Maximum number of fields of a section in Slack.
const SLACK_FIELDS: usize = 10;
/// Maximum length of the notification text in Slack, in characters.
const SLACK_FALLBACK: usize = 3_500;

/// Maximum size of all texts in a Teams message, in bytes of JSON. Teams accepts about 28 KB per message;
/// the JSON around the texts is small.
const TEAMS_BYTES: usize = 26_000;

/// Maximum length of a title, in characters.
const TITLE: usize = 250;

/// Chat service of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatKind {
    /// Slack.
    Slack,
    /// Microsoft Teams, through Workflows.
    Teams,
}

/// Client of one chat webhook.
#[derive(Clone)]
pub struct ChatWebhook {
    client: Client,
    url: Secret,
    kind: ChatKind,
}

impl ChatWebhook {
    /// Creates a client of the webhook at `url`.
    pub fn new(client: Client, url: Secret, kind: ChatKind) -> Self {
        Self { client, url, kind }
    }

    /// Returns what keeps the chat from answering at the moment.
    pub fn availability(&self) -> Availability {
        self.client.availability()
    }

    /// Returns the remaining rate limit of the webhook.
    pub fn quota(&self) -> Quota {
        self.client.quota()
    }

    /// Posts a message. The services support no idempotency key: a message that is posted again after a
    /// lost response may appear twice.
    ///
    /// # Errors
    /// Fails if the service rejects the message or does not respond. A permanent error means that the
    /// webhook was removed or its address is wrong.
    pub async fn post(&self, message: &ChatMessage) -> Result<(), VendorError> {
        let body = match self.kind {
            ChatKind::Slack => slack(message),
            ChatKind::Teams => teams(message),
        };
        let request =
            Request::new("posting to the chat", Method::POST, self.url.expose()).json(&body);
        let response = self.client.send(&request).await?;
        match self.kind {
            // Slack accepted the message only if the body is `ok`, whatever the status.
            ChatKind::Slack if response.text().trim() != "ok" => {
                Err(response.status_error(422, &response.text()))
            }
            ChatKind::Slack | ChatKind::Teams => Ok(()),
        }
    }
}

fn slack(message: &ChatMessage) -> Value {
    let title = slack_text(&single_line(&message.title), TITLE * 2);
    let headline = match title_url(message) {
        // A `|` would end the link's address.
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
                    slack_text(&single_line(name), 200),
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
    let fallback = match title_url(message) {
        Some(url) => format!("{} {url}", single_line(&message.title)),
        None => single_line(&message.title).into_owned(),
    };
    json!({"text": slack_text(&fallback, SLACK_FALLBACK), "blocks": blocks})
}

fn teams(message: &ChatMessage) -> Value {
    let mut remaining = TEAMS_BYTES;
    let mut fit = |text: &str| {
        let fitted = teams_text(text, remaining);
        // A character of one byte may take six bytes in JSON.
        remaining = remaining.saturating_sub(Value::from(fitted.as_str()).to_string().len());
        fitted
    };
    let title = fit(&truncate_chars(
        single_line(&message.title),
        TITLE,
        ELLIPSIS,
    ));
    let mut card = vec![json!({
        "type": "TextBlock", "text": title, "weight": "Bolder", "size": "Medium", "wrap": true,
    })];
    let facts: Vec<Value> = message
        .facts
        .iter()
        .take(20)
        .map(|(name, value)| {
            let name = truncate_chars(single_line(name), 100, ELLIPSIS);
            let value = truncate_chars(value, 500, ELLIPSIS);
            json!({"title": fit(&name), "value": fit(&value)})
        })
        .collect();
    if !facts.is_empty() {
        card.push(json!({"type": "FactSet", "facts": facts}));
    }
    if !message.text.trim().is_empty() {
        card.push(json!({"type": "TextBlock", "text": fit(message.text.trim()), "wrap": true}));
    }
    let actions: Vec<Value> = title_url(message)
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

/// Returns the title's link if it is an HTTP address.
fn title_url(message: &ChatMessage) -> Option<&str> {
    let url = message.title_url.as_deref()?;
    let is_http = url.starts_with("https://") || url.starts_with("http://");
    (is_http && !url.contains(char::is_whitespace)).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::test_client;
    use test_support::{StubReply, TestServer};

    async fn post(
        kind: ChatKind,
        status: u16,
        body: &'static str,
    ) -> (TestServer, Result<(), VendorError>) {
        let server =
            TestServer::start(move |_, _| StubReply::Response(status, vec![], body.to_owned()))
                .await;
        let url = Secret::new(format!("{}/services/SECRET", server.url));
        let outcome = ChatWebhook::new(test_client("the chat"), url, kind)
            .post(&message())
            .await;
        (server, outcome)
    }

    #[tokio::test]
    async fn recognizes_success_and_failure_of_each_service() {
        let (server, outcome) = post(ChatKind::Slack, 200, "ok").await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(server.requests()[0].json(), slack(&message()));
        let (server, outcome) = post(ChatKind::Teams, 202, "").await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(server.requests()[0].json(), teams(&message()));

        let (_, rejected) = post(ChatKind::Slack, 200, "no_active_hooks").await;
        assert!(rejected.unwrap_err().is_permanent());
        let (server, not_found) = post(ChatKind::Slack, 404, "channel_not_found").await;
        let error = not_found.unwrap_err();
        assert_eq!(
            error.to_string(),
            "posting to the chat: the chat answered 404: channel_not_found"
        );
        assert_eq!(
            server.requests().len(),
            1,
            "the client does not repeat a message"
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
    fn slack_texts_cannot_mention_people() {
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
    fn messages_stay_within_the_limits() {
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
    fn escapes_markdown_in_cards() {
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
