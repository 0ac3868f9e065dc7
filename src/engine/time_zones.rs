//! Time zones from the database of the system. The program contains none: their data is large and changes every year.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use domain::mapping::{LandingError, Mapping};
use domain::time::Timestamp;
use domain::time_zone::TimeZone;

/// Folders of the database.
const FOLDERS: [&str; 3] = [
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/etc/zoneinfo",
];

/// Maximum size of a zone's data, in bytes. The largest has less than 4 KB.
const MAX_DATA: u64 = 64 * 1024;

/// Reads a time zone. `None` if this machine has no valid data for the name.
pub(crate) fn time_zone(name: &str) -> Option<TimeZone> {
    if !TimeZone::is_name(name) {
        return None;
    }
    TimeZone::without_data(name).or_else(|| {
        let mut data = FOLDERS.iter().filter_map(|folder| {
            let mut data = Vec::new();
            let file = File::open(Path::new(folder).join(name)).ok()?;
            file.take(MAX_DATA).read_to_end(&mut data).ok()?;
            Some(data)
        });
        data.find_map(|data| TimeZone::from_data(name, &data))
    })
}

/// Returns that this machine has no data for the time zone of a mapping.
pub(crate) fn missing_data(mapping: &Mapping) -> Option<LandingError> {
    let name = &mapping.dispatch_window.as_ref()?.time_zone;
    match time_zone(name) {
        Some(_) => None,
        None => Some(LandingError::NoTimeZoneData(name.clone())),
    }
}

/// Returns why no run of a mapping starts now: it is outside of its dispatch hours, or they cannot be told.
pub(crate) fn closed_message(mapping: &Mapping, now: Timestamp) -> Option<String> {
    let window = mapping.dispatch_window.as_ref()?;
    match time_zone(&window.time_zone) {
        Some(zone) => window.closed_message(&zone, now),
        None => Some(format!(
            "The dispatch hours of this project ({window}) are not known: this machine has no data of their time zone. \
             Install it (Debian: apt install tzdata)."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_needs_no_data_and_other_names_must_be_known() {
        assert!(time_zone("UTC").is_some());
        for name in ["Europe/Nowhere", "../../etc/passwd", "Europe", "tzdata.zi"] {
            assert!(time_zone(name).is_none(), "{name}");
        }
    }
}
