//! `agent-implement audit verify`: whether the record of who did what is whole.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use super::local_service::{self, ServiceLocation, ServiceOrStore};
use domain::audit::AuditVerification;
use store::audit;

#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Look at every entry of the audit: exit 0 when none was changed, removed or moved, else 1 with
    /// the number of the first that was.
    Verify {
        /// A hash that the log printed earlier; it must be in the chain, or the chain was made anew.
        #[arg(long, value_name = "HASH", value_parser = hash)]
        head: Option<String>,
        #[command(flatten)]
        place: ServiceLocation,
    },
}

impl AuditArgs {
    pub fn location(&self) -> &ServiceLocation {
        let Command::Verify { place, .. } = &self.command;
        place
    }
}

pub async fn audit(arguments: AuditArgs) -> anyhow::Result<ExitCode> {
    let Command::Verify { head, place } = arguments.command;
    let verdict = verify(place.data_dir(), head.as_deref()).await?;
    Ok(tell(&verdict))
}

/// Digits of a hash.
const HASH_DIGITS: usize = 64;

/// Reads a hash of the audit.
fn hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == HASH_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_hash {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(format!(
            "a hash of the audit has {HASH_DIGITS} hexadecimal digits"
        )),
    }
}

async fn verify(data_dir: &Path, head: Option<&str>) -> anyhow::Result<AuditVerification> {
    match local_service::connect_or_open(data_dir).await? {
        ServiceOrStore::Stopped(store) => Ok(store.read(|tx| audit::verify(tx, head))?),
        ServiceOrStore::Running(service) => {
            let anchor = head.map(|hash| format!("?head={hash}")).unwrap_or_default();
            let path = format!("/api/audit/verify{anchor}");
            let told = service.get(&path).await?;
            let told = told
                .context("the service that runs keeps no audit: it is older than this program")?;
            Ok(serde_json::from_value(told)?)
        }
    }
}

fn tell(verdict: &AuditVerification) -> ExitCode {
    let AuditVerification {
        ok,
        entries,
        head,
        broken_at,
    } = verdict;
    let head = head.as_deref().unwrap_or("none");
    match (ok, broken_at) {
        (true, _) => {
            println!("ok: {entries} entries, head {head}");
            return ExitCode::SUCCESS;
        }
        (false, Some(seq)) => println!("broken at entry {seq}; {entries} entries before it hold"),
        (false, None) => println!(
            "the chain holds and the given head is not in it: it was made anew ({entries} entries, head {head})"
        ),
    }
    ExitCode::FAILURE
}
