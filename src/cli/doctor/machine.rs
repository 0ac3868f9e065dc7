//! What can be told of this machine alone: folder, key, port, space.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use domain::checkup::Finding;
use engine::config::Config;
use engine::doctor::Standing;
use store::{KEY_FILE, ROOM_TO_BEGIN, free_in};

/// Below this, an operator should know.
const LITTLE_SPACE: u64 = 1 << 30;

/// The data folder, and the key in it.
pub(super) fn folder(config: &Config) -> Vec<Finding> {
    let (check, dir) = ("data-folder", config.data_dir.as_path());
    let shown = dir.display();
    let why = "The service keeps everything there and does not start without.";
    let there = if dir.exists() { dir } else { ancestor(dir) };
    if let Err(error) = tempfile::tempfile_in(there) {
        return vec![
            Finding::error(check, format!("{} cannot be written: {error}", there.display()))
                .because(why)
                .mend(format!("Give it to the service's user: chown -R <user> {shown}; or set DATA_DIR to a folder that is.")),
        ];
    }
    let free = free_in(there);
    let space = match free {
        Some(free) if free < LITTLE_SPACE => {
            let what = format!("only {} MiB are free where {shown} is", free >> 20);
            let because = "Nothing is dispatched or acknowledged when the store cannot grow.";
            let remedy = "Free some space, or move DATA_DIR to a larger disk.";
            let found = match free < ROOM_TO_BEGIN {
                true => Finding::error(check, what),
                false => Finding::warning(check, what),
            };
            found.because(because).mend(remedy)
        }
        _ if there != dir => Finding::ok(
            check,
            format!("{shown} is not there yet; the first start makes it"),
        ),
        _ => Finding::ok(check, format!("{shown} can be written")),
    };
    std::iter::once(space).chain(key(config)).collect()
}

fn ancestor(dir: &Path) -> &Path {
    let mut above = dir.ancestors().skip(1);
    let found = above.find(|path| path.exists());
    found.unwrap_or(Path::new("."))
}

/// The file with the key of the stored secrets, where there is one.
fn key(config: &Config) -> Option<Finding> {
    let (check, path) = ("secrets-key", config.data_dir.join(KEY_FILE));
    let file = fs::metadata(&path).ok()?;
    let shown = path.display();
    let folder = fs::metadata(&config.data_dir).ok()?;
    Some(if file.mode() & 0o077 != 0 {
        let what = format!(
            "{shown} can be read by others (mode {:04o})",
            file.mode() & 0o7777
        );
        Finding::error(check, what)
            .because("It opens every stored secret.")
            .mend(format!("chmod 600 {shown}"))
    } else if file.uid() != folder.uid() {
        Finding::error(
            check,
            format!("{shown} belongs to another user than its folder"),
        )
        .because("The service may not be able to read it, and does not start then.")
        .mend(format!(
            "chown --reference={} {shown}",
            config.data_dir.display()
        ))
    } else {
        Finding::ok(
            check,
            format!("{shown} is its owner's alone; keep a copy elsewhere"),
        )
    })
}

/// Whether the service can have its port, or has it.
pub(super) fn port(config: &Config, standing: Standing) -> Finding {
    let (check, listen) = ("port", config.listen);
    if standing == Standing::Running {
        return Finding::ok(check, "the service is running");
    }
    match TcpListener::bind(listen) {
        Ok(_) => Finding::ok(check, format!("{listen} is free")),
        Err(error) => Finding::error(check, format!("{listen} cannot be listened on: {error}"))
            .because("The service does not start.")
            .mend("Set PORT (and LISTEN_ADDR) to a free address, or stop what is using it."),
    }
}

/// The operator's own pipelines and steps.
pub(super) fn custom(config: &Config) -> Finding {
    let (check, dir) = ("custom-dir", &config.custom_dir);
    let shown = dir.display();
    if !dir.exists() {
        return Finding::off(
            check,
            format!("{shown} is not there; the built-in pipelines are used"),
        );
    }
    match pipeline::survey(dir) {
        Ok(files) => Finding::ok(check, format!("{shown} holds {} files", files.len())),
        Err(error) => Finding::error(check, format!("{shown} cannot be read: {error}"))
            .because("The panel cannot show which pipelines and steps are the operator's.")
            .mend("Let the service's user read the folder, or set CUSTOM_DIR to the right one."),
    }
}

/// Whether there is a way in for operators.
pub(super) fn admin(config: &Config) -> Finding {
    match config.admin_access_code {
        Some(_) => Finding::ok("admin", "the panel and the admin API are on"),
        None => Finding::off(
            "admin",
            "the panel and the admin API are off: set ADMIN_ACCESS_CODE to have them",
        ),
    }
}
