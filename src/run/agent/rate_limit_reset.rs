//! Reset times of provider rate limits, parsed from messages of agent programs.
//!
//! - Claude Code reports seconds since the epoch for a subscription. With an API key it prints only the
//!   provider's message (tested with version 2.1.197: it prints neither `retry-after` nor
//!   `anthropic-ratelimit-*` headers, and exits at once after a long `retry-after`).
//! - Codex prints a time of day in the zone of `TZ`, with the date if it is another day; older versions
//!   print a duration.
//! - Gemini CLI prints a duration in Go or protobuf notation.
//!
//! Callers limit the reset time. Unparsable text yields no time.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use domain::time::Timestamp;

/// Maximum clock difference: a time of day that passed no longer ago still means today.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(10 * 60);

/// Prefixes of month names.
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// Converts seconds since the epoch.
pub(super) fn from_epoch_seconds(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1000))
}

/// Parses a message about the monthly limit of an API key: `… You will regain access on 2026-12-01 at
/// 00:00 UTC.`
pub(super) fn parse_claude(message: &str) -> Option<Timestamp> {
    let (_, rest) = message.rsplit_once("regain access on ")?;
    let (date, rest) = rest.split_once(" at ")?;
    let (time, _) = rest.split_once(" UTC")?;
    instant(date.parse().ok()?, time.parse().ok()?)
}

/// Parses a message of Codex: `… try again at 10:26 PM.`, `… at Nov 22nd, 2026 10:26 PM.` in UTC, or
/// `… in 3 hours 12 minutes.`
pub(super) fn parse_codex(message: &str, now: Timestamp) -> Option<Timestamp> {
    let message = message.to_ascii_lowercase();
    let (_, rest) = message.rsplit_once("try again ")?;
    match rest.strip_prefix("at ") {
        Some(time) => parse_clock_time(time, now),
        None => parse_long_duration(rest.strip_prefix("in ")?, now),
    }
}

/// Parses a message of Gemini CLI: `… quota will reset after 17h22m11s.`, `… retry in 34.07s.`
pub(super) fn parse_gemini(message: &str, now: Timestamp) -> Option<Timestamp> {
    let message = message.to_ascii_lowercase();
    let prefixes = ["reset after ", "retry in ", "retry after "];
    let rest = prefixes
        .iter()
        .find_map(|prefix| Some(message.rsplit_once(prefix)?.1))?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || "hms.".contains(c)));
    let duration = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
    Some(now + parse_short_duration(duration)?)
}

/// Parses a time of day, optionally preceded by a date.
fn parse_clock_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim().trim_end_matches('.');
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
        .collect();
    match words[..] {
        [time, half, ..] if time.contains(':') => {
            let today = jiff::Timestamp::from_millisecond(i64::try_from(now.as_millis()).ok()?)
                .ok()?
                .to_zoned(TimeZone::UTC)
                .date();
            let at = instant(today, time_of_day(time, half)?)?;
            // The time may be tomorrow. Just after midnight, a clock behind ours may still print
            // today's time.
            let is_over = at + CLOCK_TOLERANCE < now;
            Some(if is_over {
                at + Duration::from_secs(24 * 60 * 60)
            } else {
                at
            })
        }
        [month, day, year, time, half, ..] => {
            let month = MONTHS.iter().position(|name| month.starts_with(name))?;
            let day = day.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let month = i8::try_from(month + 1).ok()?;
            let date = Date::new(year.parse().ok()?, month, day.parse().ok()?).ok()?;
            instant(date, time_of_day(time, half)?)
        }
        _ => None,
    }
}

fn instant(date: Date, time: Time) -> Option<Timestamp> {
    let moment = DateTime::from_parts(date, time).to_zoned(TimeZone::UTC);
    let millis = moment.ok()?.timestamp().as_millisecond();
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

/// Parses `10:26` and `pm`.
fn time_of_day(time: &str, half: &str) -> Option<Time> {
    let (hour, minute) = time.split_once(':')?;
    let (hour, minute): (i8, i8) = (hour.parse().ok()?, minute.parse().ok()?);
    let is_hour = (1..=12).contains(&hour);
    let hour = match half.get(..2)? {
        "am" if is_hour => hour % 12,
        "pm" if is_hour => hour % 12 + 12,
        _ => return None,
    };
    Time::new(hour, minute, 0, 0).ok()
}

/// Parses `3 days 1 hour 5 minutes.` and adds it to now.
fn parse_long_duration(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim().trim_end_matches('.');
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut seconds = 0_u64;
    let pairs = words.chunks_exact(2).map_while(|pair| {
        let count: u64 = pair[0].parse().ok()?;
        let unit = match pair[1].trim_end_matches(',').trim_end_matches('s') {
            "second" => 1,
            "minute" => 60,
            "hour" => 60 * 60,
            "day" => 24 * 60 * 60,
            _ => return None,
        };
        Some(count.saturating_mul(unit))
    });
    for part in pairs {
        seconds = seconds.saturating_add(part);
    }
    (seconds > 0).then(|| now + Duration::from_secs(seconds))
}

/// Parses `17h22m11s` or `34.07s`.
fn parse_short_duration(text: &str) -> Option<Duration> {
    let mut seconds = 0.0_f64;
    let mut number = String::new();
    for character in text.chars() {
        let unit = match character {
            'h' => 3600.0,
            'm' => 60.0,
            's' => 1.0,
            digit => {
                number.push(digit);
                continue;
            }
        };
        seconds += number.parse::<f64>().ok()? * unit;
        number.clear();
    }
    let is_whole = number.is_empty() && !text.is_empty();
    is_whole.then(|| Duration::try_from_secs_f64(seconds).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn parses_reset_times_of_all_programs() {
        let now = at("2026-11-21T20:00:00Z");
        let rows = [
            (
                "You’ve hit your usage limit. Try again at 10:26 PM.",
                Some("2026-11-21T22:26:00Z"),
            ),
            (
                "You've hit your usage limit. Upgrade to Pro (https://x/pro) or try again at 9:05 PM.",
                Some("2026-11-21T21:05:00Z"),
            ),
            ("… or try again at 12:10 AM.", Some("2026-11-22T00:10:00Z")),
            ("… try again at 7:55 PM.", Some("2026-11-21T19:55:00Z")),
            (
                "… try again at Nov 24th, 2026 9:00 AM.",
                Some("2026-11-24T09:00:00Z"),
            ),
            (
                "… try again at Jan 1st, 2027 12:00 PM.",
                Some("2027-01-01T12:00:00Z"),
            ),
            (
                "… Try again in 3 hours 12 minutes.",
                Some("2026-11-21T23:12:00Z"),
            ),
            (
                "… try again in 1 day 5 minutes.",
                Some("2026-11-22T20:05:00Z"),
            ),
            ("… Try again later.", None),
            ("… try again at 25:00 PM.", None),
            ("… try again at Nov 99th, 2026 9:00 AM.", None),
            ("… try again at noon", None),
            ("… try again in a while", None),
            ("stream disconnected", None),
        ];
        for (message, expected) in rows {
            assert_eq!(parse_codex(message, now), expected.map(at), "{message}");
        }
        let rows = [
            (
                "You have exhausted your capacity on this model. Your quota will reset after 17h22m11s.",
                Some("2026-11-22T13:22:11Z"),
            ),
            (
                "[API Error: Quota exceeded. Please retry in 34.5s., Status 429]",
                Some("2026-11-21T20:00:34.500Z"),
            ),
            ("Suggested retry after 90s.", Some("2026-11-21T20:01:30Z")),
            ("Your quota will reset after never.", None),
            ("Your quota will reset after 5.", None),
            ("You have exhausted your daily quota on this model.", None),
        ];
        for (message, expected) in rows {
            assert_eq!(parse_gemini(message, now), expected.map(at), "{message}");
        }
        let rows = [
            (
                "API Error: Request rejected (429) · You will regain access on 2026-12-01 at 00:00 UTC.",
                Some("2026-12-01T00:00:00Z"),
            ),
            ("You will regain access on 2026-12-41 at 00:00 UTC.", None),
            ("You will regain access on Monday at noon UTC.", None),
            ("API Error: Request rejected (429) · slow down", None),
        ];
        for (message, expected) in rows {
            assert_eq!(parse_claude(message), expected.map(at), "{message}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_on_any_message(
            text in "[ -~’é]{0,40}",
            similar in "(try again at|try again in|reset after) [0-9]{0,30}[:hms. ]{0,3}[0-9]{0,20} ?(pm|am|s|days)?[é]?",
        ) {
            let now = Timestamp::from_millis(1_795_300_000_000);
            for message in [format!("try again at {text}"), format!("retry in {text}"), similar] {
                parse_codex(&message, now);
                parse_claude(&message.replace("try again at", "regain access on"));
                parse_gemini(&message, now);
            }
        }
    }
}
