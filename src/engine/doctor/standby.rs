//! Check of the place that the service shares with its standby.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::app::App;
use crate::config::PlaceConfig;
use crate::standby::{StandbyPlace, age_text};
use domain::check_result::CheckResult;

const CHECK: &str = "standby";

/// Reads the record of the place. `None` without a standby. Rights to write are not checked, because that would change
/// something; a service that lacks them says so when it starts.
pub(super) async fn examine(app: &App) -> Option<CheckResult> {
    let config = app.core.config.standby.as_ref()?;
    let unreadable = |why: String| {
        CheckResult::error(CHECK, why)
            .with_impact("The service does not start, or performs nothing. Another machine cannot take over.")
            .with_remedy("Check STANDBY_PLACE, the AWS_ variables and their rights, and that this machine reaches the place.")
    };
    let place = StandbyPlace::open(&config.place, &app.core.config.proxy, &app.secrets.redactor);
    let place = match place {
        Ok(place) => place,
        Err(why) => return Some(unreadable(why)),
    };
    if let PlaceConfig::Folder(path) = &config.place
        && is_mount_point(path)
    {
        let what = format!("{place} is a mount point, an empty folder while nothing is mounted");
        return Some(
            CheckResult::warning(CHECK, what)
                .with_impact("A machine that has not mounted it begins anew, beside the one that works.")
                .with_remedy("Make a folder inside it, and set STANDBY_PLACE to that folder on both machines."),
        );
    }
    Some(match place.read_record().await {
        Err(error) => unreadable(error.to_string()),
        Ok(None) => CheckResult::ok(
            CHECK,
            format!("{place} is empty; the service writes a backup there when it starts"),
        ),
        Ok(Some((record, _))) => {
            let age = age_text(app.core.now().since(record.renewed_at));
            let complete = record
                .backups
                .iter()
                .filter(|backup| backup.parts.is_some());
            match complete.count() {
                0 => CheckResult::warning(
                    CHECK,
                    format!(
                        "{} works with {place}, which has no complete backup",
                        record.host
                    ),
                )
                .with_impact("Another machine cannot take over.")
                .with_remedy(
                    "Wait for the first backup; the overview of the panel says if it fails.",
                ),
                count => CheckResult::ok(
                    CHECK,
                    format!(
                        "{} works with {place}; its lease was renewed {age} ago, and {count} backups are there",
                        record.host
                    ),
                ),
            }
        }
    })
}

/// Whether another file system is mounted at a folder.
fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev());
    let above = path.parent().map(device);
    matches!((device(path), above), (Ok(own), Some(Ok(above))) if own != above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_mount_points() {
        let dir = tempfile::tempdir().unwrap();
        assert!(is_mount_point(Path::new("/proc")));
        assert!(!is_mount_point(Path::new("/proc/self")));
        assert!(!is_mount_point(&dir.path().join("missing")));
    }
}
