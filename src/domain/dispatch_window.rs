//! Days and hours in which a project starts runs.

use std::fmt;

use jiff::civil::Date;
use jiff::{ToSpan, Zoned};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::Timestamp;
use crate::time_zone::TimeZone;

/// Days and hours in which a project starts runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DispatchWindow {
    /// Days on which the window begins, without duplicates.
    #[schemars(length(min = 1, max = 7))]
    pub days: Vec<Day>,
    /// Time at which it begins.
    pub from: TimeOfDay,
    /// Time at which it ends. On the next day if it is before `from`.
    pub to: TimeOfDay,
    /// Name of the time zone in the IANA database.
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

impl DispatchWindow {
    /// Returns why no run starts now, as a sentence. `None` inside the window, and if `now` has no date.
    ///
    /// A local time that a clock change skips counts as by the clock before the change. Of one that a clock change
    /// repeats, the first counts.
    pub fn closed_message(&self, zone: &TimeZone, now: Timestamp) -> Option<String> {
        let now = now.in_zone(zone)?;
        let today = now.date();
        // A window of yesterday may end today. The same weekday comes again after seven days.
        let mut next = None;
        for days in -1..=7 {
            let Some((from, to)) = self.window_on(today.checked_add(days.days()).ok()?, zone)
            else {
                continue;
            };
            if from <= now && now < to {
                return None;
            }
            if from > now {
                next = Some(from);
                break;
            }
        }
        let start = next.map(|next| {
            let (day, at) = (Day::of(next.date()), self.from);
            match next.date() == today {
                true => format!(" Runs start again today at {at}."),
                false if day == Day::of(today) => {
                    format!(" Runs start again next {} at {at}.", day.name())
                }
                false => format!(" Runs start again on {} at {at}.", day.name()),
            }
        });
        let start = start.unwrap_or_default();
        Some(format!(
            "Outside the dispatch hours of this project ({self}).{start}"
        ))
    }

    /// Returns begin and end of the window that begins on a day; `None` if none does.
    fn window_on(&self, date: Date, zone: &TimeZone) -> Option<(Zoned, Zoned)> {
        if !self.days.contains(&Day::of(date)) {
            return None;
        }
        let end = match self.from < self.to {
            true => date,
            false => date.tomorrow().ok()?,
        };
        let at = |date: Date, time: TimeOfDay| {
            let local = date.at(time.hour, time.minute, 0, 0);
            zone.rules().to_zoned(local).ok()
        };
        Some((at(date, self.from)?, at(end, self.to)?))
    }
}

impl fmt::Display for DispatchWindow {
    /// Writes the window as people read it: `Mon–Fri 08:00–18:00 Europe/Berlin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, days) in consecutive(&self.days).iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            match days.as_slice() {
                [first, _, .., last] => write!(f, "{}–{}", first.short(), last.short())?,
                days => {
                    let names: Vec<&str> = days.iter().map(|day| day.short()).collect();
                    f.write_str(&names.join(", "))?;
                }
            }
        }
        write!(f, " {}–{} {}", self.from, self.to, self.time_zone)
    }
}

/// Returns the days in groups that follow each other.
fn consecutive(days: &[Day]) -> Vec<Vec<Day>> {
    let mut groups: Vec<Vec<Day>> = Vec::new();
    for day in days {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| last.precedes(*day)) => group.push(*day),
            _ => groups.push(vec![*day]),
        }
    }
    groups
}

/// Day of the week.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

/// Days with their names, in the order of the week.
const DAYS: [(Day, &str); 7] = [
    (Day::Mon, "Monday"),
    (Day::Tue, "Tuesday"),
    (Day::Wed, "Wednesday"),
    (Day::Thu, "Thursday"),
    (Day::Fri, "Friday"),
    (Day::Sat, "Saturday"),
    (Day::Sun, "Sunday"),
];

impl Day {
    fn of(date: Date) -> Self {
        DAYS[usize::from(date.weekday().to_monday_zero_offset().unsigned_abs())].0
    }

    fn name(self) -> &'static str {
        DAYS[self as usize].1
    }

    fn short(self) -> &'static str {
        &self.name()[..3]
    }

    fn precedes(self, next: Self) -> bool {
        self as usize + 1 == next as usize
    }
}

/// Time of day, from `00:00` to `23:59`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay {
    hour: i8,
    minute: i8,
}

impl TimeOfDay {
    /// Parses a time such as `08:00`.
    pub fn parse(text: &str) -> Option<Self> {
        let (hour, minute) = text.split_once(':')?;
        let two_digits = |part: &str, end: i8| {
            let is_plain = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            let number = part.parse().ok().filter(|number| *number < end);
            number.filter(|_| is_plain)
        };
        Some(Self {
            hour: two_digits(hour, 24)?,
            minute: two_digits(minute, 60)?,
        })
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)
    }
}

impl Serialize for TimeOfDay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeOfDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a time such as 08:00"))
    }
}

impl JsonSchema for TimeOfDay {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TimeOfDay".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Time of day.",
            "type": "string",
            "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$",
            "examples": ["08:00"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Central European time, with clock changes on the last Sundays of March and October.
    fn berlin() -> TimeZone {
        TimeZone::from_rules(jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap())
    }

    fn window(days: &[Day], from: &str, to: &str) -> DispatchWindow {
        DispatchWindow {
            days: days.to_vec(),
            from: TimeOfDay::parse(from).unwrap(),
            to: TimeOfDay::parse(to).unwrap(),
            time_zone: "Europe/Berlin".to_owned(),
        }
    }

    fn message(window: &DispatchWindow, at: &str) -> Option<String> {
        window.closed_message(&berlin(), Timestamp::parse(at).unwrap())
    }

    const WEEK: [Day; 7] = [
        Day::Mon,
        Day::Tue,
        Day::Wed,
        Day::Thu,
        Day::Fri,
        Day::Sat,
        Day::Sun,
    ];

    #[test]
    fn names_the_hours_and_the_next_start() {
        let hours =
            "Outside the dispatch hours of this project (Mon–Fri 08:00–18:00 Europe/Berlin).";
        let office = window(&WEEK[..5], "08:00", "18:00");
        for (at, start) in [
            // A Friday in winter: one hour ahead of UTC.
            ("2026-11-27T17:00:00Z", "on Monday at 08:00."),
            ("2026-11-28T09:00:00Z", "on Monday at 08:00."),
            ("2026-11-30T06:59:59Z", "today at 08:00."),
            ("2026-12-01T17:30:00Z", "on Wednesday at 08:00."),
            // In summer, two hours ahead.
            ("2026-07-03T16:00:00Z", "on Monday at 08:00."),
        ] {
            let expected = format!("{hours} Runs start again {start}");
            assert_eq!(message(&office, at), Some(expected), "{at}");
        }
        for at in [
            "2026-11-30T07:00:00Z",
            "2026-11-27T16:59:59.999Z",
            "2026-07-03T15:59:59Z",
        ] {
            assert_eq!(message(&office, at), None, "{at}");
        }
        let mondays = window(&[Day::Mon], "08:00", "09:00");
        let after = message(&mondays, "2026-11-30T10:00:00Z").unwrap();
        assert!(
            after.ends_with("Runs start again next Monday at 08:00."),
            "{after}"
        );
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        let nights = window(&[Day::Fri, Day::Sat], "22:00", "06:00");
        for (at, is_open) in [
            // Thursday to Friday.
            ("2026-11-27T04:00:00Z", false),
            ("2026-11-27T20:59:00Z", false),
            ("2026-11-27T21:00:00Z", true),
            ("2026-11-28T04:59:00Z", true),
            ("2026-11-28T05:00:00Z", false),
            ("2026-11-28T21:00:00Z", true),
            // Sunday.
            ("2026-11-29T04:59:00Z", true),
            ("2026-11-29T21:00:00Z", false),
        ] {
            assert_eq!(message(&nights, at).is_none(), is_open, "{at}");
        }
        let until_midnight = window(&[Day::Mon], "08:00", "00:00");
        assert_eq!(message(&until_midnight, "2026-11-30T22:59:59Z"), None);
        assert!(message(&until_midnight, "2026-11-30T23:00:00Z").is_some());
    }

    /// On 29 March 2026, 02:00 to 03:00 do not exist. On 25 October 2026 they come twice.
    #[test]
    fn clock_changes_neither_lose_nor_repeat_a_window() {
        for (from, to, begin, end) in [
            // Skipped hour: by the clock before the change.
            (
                "02:30",
                "04:00",
                "2026-03-29T01:30:00Z",
                "2026-03-29T02:00:00Z",
            ),
            (
                "01:30",
                "02:30",
                "2026-03-29T00:30:00Z",
                "2026-03-29T01:30:00Z",
            ),
            (
                "02:15",
                "02:45",
                "2026-03-29T01:15:00Z",
                "2026-03-29T01:45:00Z",
            ),
            // Repeated hour: the first.
            (
                "02:30",
                "04:00",
                "2026-10-25T00:30:00Z",
                "2026-10-25T03:00:00Z",
            ),
            (
                "01:30",
                "02:30",
                "2026-10-24T23:30:00Z",
                "2026-10-25T00:30:00Z",
            ),
        ] {
            let sunday = window(&[Day::Sun], from, to);
            let (begin, end) = (
                Timestamp::parse(begin).unwrap(),
                Timestamp::parse(end).unwrap(),
            );
            let mut at = begin - std::time::Duration::from_secs(6 * 3600);
            while at < end + std::time::Duration::from_secs(6 * 3600) {
                let is_open = sunday.closed_message(&berlin(), at).is_none();
                assert_eq!(is_open, begin <= at && at < end, "{from}–{to} at {at}");
                at = at + std::time::Duration::from_secs(5 * 60);
            }
        }
    }

    #[test]
    fn days_are_shown_in_groups() {
        for (days, shown) in [
            (&WEEK[..], "Mon–Sun"),
            (&WEEK[..5], "Mon–Fri"),
            (&[Day::Mon, Day::Tue], "Mon, Tue"),
            (&[Day::Mon, Day::Wed, Day::Thu, Day::Fri], "Mon, Wed–Fri"),
            (&[Day::Sun], "Sun"),
        ] {
            let window = window(days, "08:00", "18:00");
            assert_eq!(
                window.to_string(),
                format!("{shown} 08:00–18:00 Europe/Berlin")
            );
        }
    }
}
