//! Checks of this machine: data folder, key, port, free space.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use domain::check_result::CheckResult;
use engine::config::Config;
use engine::doctor::ServiceState;
use store::{MIN_FREE_FOR_NEW_WORK, SECRETS_KEY_FILE, free_bytes};

/// Folder that the unit of the package permits the service to write to.
const STATE_DIRECTORY: &str = "/var/lib/agent-implement";

/// Free space below which `doctor` warns, in bytes.
const LOW_SPACE_BYTES: u64 = 1 << 30;

/// Checks the data folder and the key in it.
pub(super) fn check_data_dir(config: &Config) -> Vec<CheckResult> {
    let (check, dir) = ("data-folder", config.data_dir.as_path());
    let shown = dir.display();
    let impact = "The service stores all its data there and does not start without it.";
    let existing = if dir.exists() { dir } else { ancestor(dir) };
    if let Err(error) = tempfile::tempfile_in(existing) {
        return vec![
            CheckResult::error(check, format!("cannot write to {}: {error}", existing.display()))
                .with_impact(impact)
                .with_remedy(format!("Make the service's user its owner: chown -R <user> {shown}; or set DATA_DIR to another folder.")),
        ];
    }
    let free = free_bytes(existing);
    let space = match free {
        Some(free) if free < LOW_SPACE_BYTES => {
            let message = format!("only {} MiB are free on the disk of {shown}", free >> 20);
            let impact = "Nothing is dispatched or acknowledged when the store cannot grow.";
            let remedy = "Free some space, or move DATA_DIR to a larger disk.";
            let finding = match free < MIN_FREE_FOR_NEW_WORK {
                true => CheckResult::error(check, message),
                false => CheckResult::warning(check, message),
            };
            finding.with_impact(impact).with_remedy(remedy)
        }
        _ if existing != dir => CheckResult::ok(
            check,
            format!("{shown} does not exist yet; the first start creates it"),
        ),
        _ => CheckResult::ok(check, format!("{shown} is writable")),
    };
    std::iter::once(space).chain(check_key(config)).collect()
}

/// Checks that the unit of the package permits the service to write to its data folder, which root may always do.
pub(super) fn check_unit(config: &Config) -> Option<CheckResult> {
    let dir = &config.data_dir;
    let show = [
        "show",
        "--value",
        "--property=ReadWritePaths",
        "agent-implement",
    ];
    let shown = Command::new("systemctl").args(show).output().ok()?;
    let paths = String::from_utf8_lossy(&shown.stdout);
    let mut paths = paths.split_whitespace().chain([STATE_DIRECTORY]);
    // Prefixes of systemd: ignored if missing, relative to the root of the service.
    let permits = |path: &str| dir.starts_with(path.trim_start_matches(['-', '+']));
    if !shown.status.success() || paths.any(permits) {
        return None;
    }
    let shown = dir.display();
    let message = format!("the unit of the service does not permit writing to {shown}");
    let remedy = format!(
        "systemctl edit agent-implement, and add the section [Service] with ReadWritePaths={shown}; or remove DATA_DIR \
         from the settings."
    );
    Some(
        CheckResult::error("data-folder", message)
            .with_impact("The service does not start.")
            .with_remedy(remedy),
    )
}

fn ancestor(dir: &Path) -> &Path {
    let mut ancestors = dir.ancestors().skip(1);
    let existing = ancestors.find(|path| path.exists());
    existing.unwrap_or(Path::new("."))
}

/// Checks the file with the key of the stored secrets, if it exists.
fn check_key(config: &Config) -> Option<CheckResult> {
    let (check, path) = ("secrets-key", config.data_dir.join(SECRETS_KEY_FILE));
    let file = fs::metadata(&path).ok()?;
    let shown = path.display();
    let folder = fs::metadata(&config.data_dir).ok()?;
    Some(if file.mode() & 0o077 != 0 {
        let message = format!(
            "{shown} can be read by other users (mode {:04o})",
            file.mode() & 0o7777
        );
        CheckResult::error(check, message)
            .with_impact("It decrypts every stored secret.")
            .with_remedy(format!("chmod 600 {shown}"))
    } else if file.uid() != folder.uid() {
        CheckResult::error(
            check,
            format!("{shown} and its folder belong to different users"),
        )
        .with_impact("If the service cannot read it, it does not start.")
        .with_remedy(format!(
            "chown --reference={} {shown}",
            config.data_dir.display()
        ))
    } else {
        CheckResult::ok(
            check,
            format!("only its owner can read {shown}; keep a copy in another place"),
        )
    })
}

/// Checks that the service can listen on its port, or does so already.
pub(super) fn check_port(config: &Config, service_state: ServiceState) -> CheckResult {
    let (check, listen) = ("port", config.listen);
    if service_state == ServiceState::Running {
        return CheckResult::ok(check, "the service is running");
    }
    match TcpListener::bind(listen) {
        Ok(_) => CheckResult::ok(check, format!("{listen} is free")),
        Err(error) => CheckResult::error(check, format!("cannot listen on {listen}: {error}"))
            .with_impact("The service does not start.")
            .with_remedy(
                "Set PORT (and LISTEN_ADDR) to a free address, or stop the program that uses it.",
            ),
    }
}

/// Checks the folder of custom pipelines and steps.
pub(super) fn check_custom_dir(config: &Config) -> CheckResult {
    let (check, dir) = ("custom-dir", &config.custom_dir);
    let shown = dir.display();
    if !dir.exists() {
        return CheckResult::not_configured(
            check,
            format!("{shown} does not exist; the built-in pipelines are used"),
        );
    }
    match pipeline::list_customizations(dir) {
        Ok(files) => CheckResult::ok(check, format!("{shown} contains {} files", files.len())),
        Err(error) => CheckResult::error(check, format!("cannot read {shown}: {error}"))
            .with_impact("The panel cannot show the custom pipelines and steps.")
            .with_remedy(
                "Make the folder readable for the service's user, or set CUSTOM_DIR to the right folder.",
            ),
    }
}

/// Checks that the panel and the admin API are switched on.
pub(super) fn check_admin_access(config: &Config) -> CheckResult {
    match config.admin_access_code {
        Some(_) => CheckResult::ok("admin", "the panel and the admin API are on"),
        None => CheckResult::not_configured(
            "admin",
            "the panel and the admin API are off; set ADMIN_ACCESS_CODE to enable them",
        ),
    }
}
