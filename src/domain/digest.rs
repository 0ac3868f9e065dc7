//! Daily chat message about what waits for people.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::effect::ChatMessage;
use crate::review_capacity::age;
use crate::sanitize;
use crate::time::Timestamp;

/// One day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Time after its hour for which a digest is still sent, such as after a restart.
const GRACE: Duration = Duration::from_secs(2 * 60 * 60);

/// Maximum number of items that a section names.
const MAX_NAMED: usize = 5;

/// Maximum length of a title in an item, in characters.
const MAX_TITLE: usize = 40;

/// What waits for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Digest {
    /// Pull requests that wait for a review.
    pub reviews: Vec<WaitingItem>,
    /// Tickets whose run asked a question.
    pub questions: Vec<WaitingItem>,
    /// Tickets whose plan waits for an approval.
    pub approvals: Vec<WaitingItem>,
    /// Parked tickets.
    pub parked: Vec<WaitingItem>,
    /// Pull requests with failed checks.
    pub red: Vec<WaitingItem>,
}

/// Ticket or pull request that waits for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingItem {
    /// Key of the ticket.
    pub key: String,
    /// Title of the ticket.
    pub title: String,
    /// Pull request, such as `acme/shop#12`.
    pub pull: Option<String>,
    /// Begin of the wait.
    pub since: Timestamp,
}

/// Last digest.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DigestRecord {
    /// Hour of the last digest, also of one that had nothing to say.
    #[serde(default)]
    pub due_at: Timestamp,
    /// Time of the last message.
    #[serde(default)]
    pub sent_at: Timestamp,
}

impl DigestRecord {
    /// Returns the hour whose digest is due. `None` if it was made, if its time is over, or if the last message is less
    /// than 24 hours old. `hour` is in UTC.
    pub fn due(self, hour: u8, now: Timestamp) -> Option<Timestamp> {
        let day = DAY.as_secs() * 1_000;
        let offset = u64::from(hour) * 60 * 60 * 1_000;
        let since_hour = (now.as_millis() + day - offset) % day;
        let due_at = now - Duration::from_millis(since_hour);
        // Times in the future are those of a clock that was wrong.
        let is_made = self.due_at <= now && self.due_at >= due_at;
        let is_recent = self.sent_at <= now && now.since(self.sent_at) < DAY;
        let is_due = now.since(due_at) < GRACE && !is_made && !is_recent;
        is_due.then_some(due_at)
    }
}

impl Digest {
    /// Returns the message. `None` if nothing waits.
    pub fn message(mut self, now: Timestamp) -> Option<ChatMessage> {
        let sections = [
            ("Reviews", "review", "reviews", &mut self.reviews),
            ("Questions", "question", "questions", &mut self.questions),
            ("Plans to approve", "plan", "plans", &mut self.approvals),
            (
                "Parked tickets",
                "parked ticket",
                "parked tickets",
                &mut self.parked,
            ),
            (
                "Red checks",
                "red pull request",
                "red pull requests",
                &mut self.red,
            ),
        ];
        let (mut counts, mut facts) = (Vec::new(), Vec::new());
        for (name, one, many, items) in sections {
            if items.is_empty() {
                continue;
            }
            counts.push(match items.len() {
                1 => format!("1 {one}"),
                count => format!("{count} {many}"),
            });
            items.sort_by(|a, b| (a.since, &a.key).cmp(&(b.since, &b.key)));
            facts.push((name.to_owned(), lines(items, now)));
        }
        (!facts.is_empty()).then(|| ChatMessage {
            title: format!("Waiting for people: {}", counts.join(", ")),
            facts,
            ..ChatMessage::default()
        })
    }
}

fn lines(items: &[WaitingItem], now: Timestamp) -> String {
    let mut lines: Vec<String> = items
        .iter()
        .take(MAX_NAMED)
        .map(|item| item.line(now))
        .collect();
    if let Some(rest) = items.len().checked_sub(MAX_NAMED).filter(|rest| *rest > 0) {
        lines.push(format!("and {rest} more"));
    }
    lines.join("\n")
}

impl WaitingItem {
    /// Oldest items come first, so the age is at the end of each line.
    fn line(&self, now: Timestamp) -> String {
        let title = sanitize::single_line(&self.title);
        let title = sanitize::truncate_chars(title, MAX_TITLE, sanitize::ELLIPSIS);
        let age = age(now.since(self.since));
        match &self.pull {
            Some(pull) => format!("{}: {title} ({pull}, {age})", self.key),
            None => format!("{}: {title} ({age})", self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn item(key: &str, days: u32, now: Timestamp) -> WaitingItem {
        WaitingItem {
            key: key.to_owned(),
            title: "Add a cart".to_owned(),
            pull: None,
            since: now - DAY * days,
        }
    }

    #[test]
    fn is_due_once_a_day_within_two_hours() {
        let never = DigestRecord::default();
        let nine = Some(at("2026-11-26T09:00:00Z"));
        for (now, expected) in [
            ("2026-11-26T08:59:59Z", None),
            ("2026-11-26T09:00:00Z", nine),
            ("2026-11-26T10:59:59Z", nine),
            ("2026-11-26T11:00:00Z", None),
        ] {
            assert_eq!(never.due(9, at(now)), expected, "{now}");
        }
        assert_eq!(
            never.due(0, at("2026-11-26T00:10:00Z")),
            Some(at("2026-11-26T00:00:00Z"))
        );
        assert_eq!(
            never.due(23, at("2026-11-27T00:10:00Z")),
            Some(at("2026-11-26T23:00:00Z"))
        );
        let sent = |due_at: &str, sent_at: &str| DigestRecord {
            due_at: at(due_at),
            sent_at: at(sent_at),
        };
        let late = sent("2026-11-25T09:00:00Z", "2026-11-25T10:30:00Z");
        assert_eq!(
            late.due(9, at("2026-11-26T09:10:00Z")),
            None,
            "not yet 24 hours"
        );
        assert_eq!(late.due(9, at("2026-11-26T10:30:00Z")), nine);
        let made = sent("2026-11-26T09:00:00Z", "2026-11-20T09:00:00Z");
        assert_eq!(
            made.due(9, at("2026-11-26T09:10:00Z")),
            None,
            "nothing waited"
        );
        // The hour was changed after the message.
        let earlier = sent("2026-11-26T07:00:00Z", "2026-11-26T07:00:00Z");
        assert_eq!(earlier.due(9, at("2026-11-26T09:10:00Z")), None);
        let future = sent("2036-11-26T09:00:00Z", "2036-11-26T09:00:00Z");
        assert_eq!(
            future.due(9, at("2026-11-26T09:10:00Z")),
            nine,
            "the clock was wrong"
        );
    }

    #[test]
    fn names_the_oldest_and_counts_all() {
        let now = at("2026-11-26T09:00:00Z");
        assert_eq!(Digest::default().message(now), None);
        let reviews = (1..=7).map(|days| WaitingItem {
            pull: Some(format!("acme/shop#{days}")),
            ..item(&format!("ENG-{days}"), days, now)
        });
        let digest = Digest {
            reviews: reviews.collect(),
            parked: vec![WaitingItem {
                title: format!("A\n{}", "x".repeat(500)),
                ..item("ENG-9", 0, now)
            }],
            ..Digest::default()
        };
        let message = digest.message(now).unwrap();
        assert_eq!(
            message.title,
            "Waiting for people: 7 reviews, 1 parked ticket"
        );
        let [reviews, parked] = &message.facts[..] else {
            panic!("{:?}", message.facts);
        };
        assert_eq!(reviews.0, "Reviews");
        let lines: Vec<&str> = reviews.1.lines().collect();
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], "ENG-7: Add a cart (acme/shop#7, 7 days)");
        assert_eq!(lines[5], "and 2 more");
        assert_eq!(parked.1.lines().count(), 1);
        assert!(
            parked.1.ends_with("… (today)") && parked.1.len() < 70,
            "{}",
            parked.1
        );
    }
}
