//! When a provider's usage limit is lifted, read from what programs print about it.
//!
//! Claude Code tells a moment in seconds of the epoch for a subscription; with an API key it prints
//! nothing but the provider's own words (tried with 2.1.197: neither `retry-after` nor the
//! `anthropic-ratelimit-*` headers come out, and after a long `retry-after` it ends at once). Codex writes for people: a time of day, with
//! the date when that is another one, in the zone that we give it; before, a span. Gemini CLI writes a
//! span as Go or protobuf do. What is told is bounded where it is used, not here; what cannot be read
//! is no time at all.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use domain::time::Timestamp;

/// How long may a time of day have passed and still mean today? Clocks differ.
const PASSED: Duration = Duration::from_secs(10 * 60);

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// Seconds of the epoch.
pub(super) fn from_epoch_seconds(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1000))
}

/// What the provider behind Claude Code says of an API key whose monthly limit is reached: `… You will
/// regain access on 2026-12-01 at 00:00 UTC.`
pub(super) fn parse_claude(words: &str) -> Option<Timestamp> {
    let (_, told) = words.rsplit_once("regain access on ")?;
    let (date, told) = told.split_once(" at ")?;
    let (time, _) = told.split_once(" UTC")?;
    instant(date.parse().ok()?, time.parse().ok()?)
}

/// What Codex says: `… try again at 10:26 PM.`, `… at Nov 22nd, 2026 10:26 PM.` in UTC, or
/// `… in 3 hours 12 minutes.`
pub(super) fn parse_codex(words: &str, now: Timestamp) -> Option<Timestamp> {
    let words = words.to_ascii_lowercase();
    let (_, told) = words.rsplit_once("try again ")?;
    match told.strip_prefix("at ") {
        Some(moment) => clock(moment, now),
        None => in_words(told.strip_prefix("in ")?, now),
    }
}

/// What Gemini CLI says: `… quota will reset after 17h22m11s.`, `… retry in 34.07s.`
pub(super) fn parse_gemini(words: &str, now: Timestamp) -> Option<Timestamp> {
    let words = words.to_ascii_lowercase();
    let marks = ["reset after ", "retry in ", "retry after "];
    let told = marks
        .iter()
        .find_map(|mark| Some(words.rsplit_once(mark)?.1))?;
    let end = told.find(|c: char| !(c.is_ascii_digit() || "hms.".contains(c)));
    let span = told[..end.unwrap_or(told.len())].trim_end_matches('.');
    Some(now + compact(span)?)
}

/// A time of day, with or without a date before it.
fn clock(told: &str, now: Timestamp) -> Option<Timestamp> {
    let told = told.trim().trim_end_matches('.');
    let words: Vec<&str> = told
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
            // Just after midnight, tonight's time is told without a date by a clock behind ours.
            let is_over = at + PASSED < now;
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

/// `10:26` and `pm`.
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

/// `3 days 1 hour 5 minutes.`
fn in_words(told: &str, now: Timestamp) -> Option<Timestamp> {
    let told = told.trim().trim_end_matches('.');
    let words: Vec<&str> = told.split_whitespace().collect();
    let mut seconds = 0_u64;
    let pairs = words.chunks_exact(2).map_while(|pair| {
        let count: u64 = pair[0].parse().ok()?;
        let each = match pair[1].trim_end_matches(',').trim_end_matches('s') {
            "second" => 1,
            "minute" => 60,
            "hour" => 60 * 60,
            "day" => 24 * 60 * 60,
            _ => return None,
        };
        Some(count.saturating_mul(each))
    });
    for span in pairs {
        seconds = seconds.saturating_add(span);
    }
    (seconds > 0).then(|| now + Duration::from_secs(seconds))
}

/// `17h22m11s`, `34.07s`.
fn compact(told: &str) -> Option<Duration> {
    let mut seconds = 0.0_f64;
    let mut number = String::new();
    for character in told.chars() {
        let each = match character {
            'h' => 3600.0,
            'm' => 60.0,
            's' => 1.0,
            digit => {
                number.push(digit);
                continue;
            }
        };
        seconds += number.parse::<f64>().ok()? * each;
        number.clear();
    }
    let is_whole = number.is_empty() && !told.is_empty();
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
    fn times_are_read_as_the_programs_print_them() {
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
        for (words, read) in rows {
            assert_eq!(parse_codex(words, now), read.map(at), "{words}");
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
        for (words, read) in rows {
            assert_eq!(parse_gemini(words, now), read.map(at), "{words}");
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
        for (words, read) in rows {
            assert_eq!(parse_claude(words), read.map(at), "{words}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_printed_breaks_it(
            told in "[ -~’é]{0,40}",
            shaped in "(try again at|try again in|reset after) [0-9]{0,30}[:hms. ]{0,3}[0-9]{0,20} ?(pm|am|s|days)?[é]?",
        ) {
            let now = Timestamp::from_millis(1_795_300_000_000);
            for words in [format!("try again at {told}"), format!("retry in {told}"), shaped] {
                parse_codex(&words, now);
                parse_claude(&words.replace("try again at", "regain access on"));
                parse_gemini(&words, now);
            }
        }
    }
}
