//! The machine of a busy service is lost, again and again, and another one takes over with what the standby has.
//!
//! Nothing of the lost data folder is used again. All checks of [`crate::service_kills`] apply, except that steps of runs
//! that were reported since the last write to the place may be missing.

use std::time::{Duration, Instant};

use fake_vendors::FakeVendors;

use crate::crash_env::CrashEnv;
use crate::program::command;

/// Key of the stored secrets, which every machine has.
const SECRETS_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Maximum time of a take-over. The lease has four seconds.
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(120);

/// Kind of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Folder,
    Bucket,
}

impl Place {
    /// Flags of the service that uses the place.
    pub fn flags(self, vendors: &FakeVendors) -> Vec<(&'static str, String)> {
        let place = match self {
            Place::Folder => {
                let folder = vendors.dir().join("standby");
                std::fs::create_dir_all(&folder).expect("the folder of the place");
                folder.display().to_string()
            }
            Place::Bucket => vendors.bucket().address(),
        };
        let mut flags = vec![
            ("--standby-place", place),
            ("--secrets-key", SECRETS_KEY.to_owned()),
        ];
        flags.extend(self.access(vendors));
        flags
    }

    fn access(self, vendors: &FakeVendors) -> Vec<(&'static str, String)> {
        if self == Place::Folder {
            return Vec::new();
        }
        let key = vendors.bucket().key();
        vec![
            ("--aws-access-key-id", key.id.to_owned()),
            ("--aws-secret-access-key", key.secret.to_owned()),
            ("--aws-region", key.region.to_owned()),
            ("--aws-endpoint-url", vendors.bucket_endpoint()),
        ]
    }
}

/// Restores the store on the next machine.
pub async fn take_over(env: &CrashEnv, place: Place) -> Result<(), String> {
    let began = Instant::now();
    env.record().machines_before += 1;
    env.record().machines_lost.push(began);
    let mut restore = command(&["restore", "--latest", "--when-free", "--data-dir"]);
    restore.arg(env.data_dir());
    let flags = place.flags(&env.vendors).into_iter();
    restore.args(flags.flat_map(|(flag, value)| match flag {
        "--standby-place" => ["--from".to_owned(), value],
        _ => [flag.to_owned(), value],
    }));
    let output = tokio::process::Command::from(restore).output();
    let output = tokio::time::timeout(TAKE_OVER_LIMIT, output).await;
    let output = output.map_err(|_| "the take-over takes too long")?;
    let output = output.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || !text.contains("Restored ") {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the take-over failed: {text}{errors}"));
    }
    env.record().take_overs.push(began.elapsed());
    Ok(())
}
