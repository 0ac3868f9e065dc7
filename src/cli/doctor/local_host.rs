//! What can be told of this machine alone: folder, key, port, space.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use domain::check_result::CheckResult;
use engine::config::Config;
use engine::doctor::ServiceState;
use store::{MIN_FREE_FOR_NEW_WORK, SECRETS_KEY_FILE, free_bytes};

/// Below this, an operator should know.
const LITTLE_SPACE: u64 = 1 << 30;

/// The data folder, and the key in it.
pub(super) fn check_data_dir(config: &Config) -> Vec<CheckResult> {
    let (check, dir) = ("data-folder", config.data_dir.as_path());
    let shown = dir.display();
    let why = "The service keeps everything there and does not start without.";
    let there = if dir.exists() { dir } else { ancestor(dir) };
    if let Err(error) = tempfile::tempfile_in(there) {
        return vec![
            CheckResult::error(check, format!("{} cannot be written: {error}", there.display()))
                .with_impact(why)
                .with_remedy(format!("Give it to the service's user: chown -R <user> {shown}; or set DATA_DIR to a folder that is.")),
        ];
    }
    let free = free_bytes(there);
    let space = match free {
        Some(free) if free < LITTLE_SPACE => {
            let what = format!("only {} MiB are free where {shown} is", free >> 20);
            let because = "Nothing is dispatched or acknowledged when the store cannot grow.";
            let remedy = "Free some space, or move DATA_DIR to a larger disk.";
            let found = match free < MIN_FREE_FOR_NEW_WORK {
                true => CheckResult::error(check, what),
                false => CheckResult::warning(check, what),
            };
            found.with_impact(because).with_remedy(remedy)
        }
        _ if there != dir => CheckResult::ok(
            check,
            format!("{shown} is not there yet; the first start makes it"),
        ),
        _ => CheckResult::ok(check, format!("{shown} can be written")),
    };
    std::iter::once(space).chain(key(config)).collect()
}

fn ancestor(dir: &Path) -> &Path {
    let mut above = dir.ancestors().skip(1);
    let found = above.find(|path| path.exists());
    found.unwrap_or(Path::new("."))
}

/// The file with the key of the stored secrets, where there is one.
fn key(config: &Config) -> Option<CheckResult> {
    let (check, path) = ("secrets-key", config.data_dir.join(SECRETS_KEY_FILE));
    let file = fs::metadata(&path).ok()?;
    let shown = path.display();
    let folder = fs::metadata(&config.data_dir).ok()?;
    Some(if file.mode() & 0o077 != 0 {
        let what = format!(
            "{shown} can be read by others (mode {:04o})",
            file.mode() & 0o7777
        );
        CheckResult::error(check, what)
            .with_impact("It opens every stored secret.")
            .with_remedy(format!("chmod 600 {shown}"))
    } else if file.uid() != folder.uid() {
        CheckResult::error(
            check,
            format!("{shown} belongs to another user than its folder"),
        )
        .with_impact("The service may not be able to read it, and does not start then.")
        .with_remedy(format!(
            "chown --reference={} {shown}",
            config.data_dir.display()
        ))
    } else {
        CheckResult::ok(
            check,
            format!("{shown} is its owner's alone; keep a copy elsewhere"),
        )
    })
}

/// Whether the service can have its port, or has it.
pub(super) fn check_port(config: &Config, standing: ServiceState) -> CheckResult {
    let (check, listen) = ("port", config.listen);
    if standing == ServiceState::Running {
        return CheckResult::ok(check, "the service is running");
    }
    match TcpListener::bind(listen) {
        Ok(_) => CheckResult::ok(check, format!("{listen} is free")),
        Err(error) => CheckResult::error(check, format!("{listen} cannot be listened on: {error}"))
            .with_impact("The service does not start.")
            .with_remedy("Set PORT (and LISTEN_ADDR) to a free address, or stop what is using it."),
    }
}

/// The operator's own pipelines and steps.
pub(super) fn check_custom_dir(config: &Config) -> CheckResult {
    let (check, dir) = ("custom-dir", &config.custom_dir);
    let shown = dir.display();
    if !dir.exists() {
        return CheckResult::not_configured(
            check,
            format!("{shown} is not there; the built-in pipelines are used"),
        );
    }
    match pipeline::list_customizations(dir) {
        Ok(files) => CheckResult::ok(check, format!("{shown} holds {} files", files.len())),
        Err(error) => CheckResult::error(check, format!("{shown} cannot be read: {error}"))
            .with_impact("The panel cannot show which pipelines and steps are the operator's.")
            .with_remedy(
                "Let the service's user read the folder, or set CUSTOM_DIR to the right one.",
            ),
    }
}

/// Whether there is a way in for operators.
pub(super) fn check_admin_access(config: &Config) -> CheckResult {
    match config.admin_access_code {
        Some(_) => CheckResult::ok("admin", "the panel and the admin API are on"),
        None => CheckResult::not_configured(
            "admin",
            "the panel and the admin API are off: set ADMIN_ACCESS_CODE to have them",
        ),
    }
}
