//! `agent-implement audit verify`: verification of the audit log.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use super::local_service::{self, ServiceLocation, ServiceOrStore};
use domain::audit::AuditVerification;
use store::audit;

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check that no entry of the audit log was changed, removed or moved. Exit code 0: the log is intact;
    /// 1: it is not, and the number of the first broken entry is printed.
    Verify {
        /// Hash noted earlier, for example from the service log. It must be in the chain; otherwise the chain
        /// was rewritten.
        #[arg(long, value_name = "HASH", value_parser = hash)]
        head: Option<String>,
        #[command(flatten)]
        location: ServiceLocation,
    },
}

impl AuditArgs {
    /// Location of the service whose audit log is verified.
    pub(super) fn location(&self) -> &ServiceLocation {
        let Command::Verify { location, .. } = &self.command;
        location
    }
}

/// Verifies the audit log and prints the result.
pub(super) async fn audit(arguments: AuditArgs) -> anyhow::Result<ExitCode> {
    let Command::Verify { head, location } = arguments.command;
    let verification = verify(location.data_dir(), head.as_deref()).await?;
    Ok(print_result(&verification))
}

/// Number of hexadecimal digits of a hash.
const HASH_DIGITS: usize = 64;

/// Parses a hash of the audit chain.
fn hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == HASH_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_hash {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(format!(
            "an audit hash has {HASH_DIGITS} hexadecimal digits"
        )),
    }
}

async fn verify(data_dir: &Path, head: Option<&str>) -> anyhow::Result<AuditVerification> {
    match local_service::connect_or_open(data_dir).await? {
        ServiceOrStore::Stopped(store) => Ok(store.read(|tx| audit::verify(tx, head))?),
        ServiceOrStore::Running(service) => {
            let anchor = head.map(|hash| format!("?head={hash}")).unwrap_or_default();
            let path = format!("/api/audit/verify{anchor}");
            let response = service.get(&path).await?;
            let response = response
                .context("the running service is older than this program and has no audit log")?;
            Ok(serde_json::from_value(response)?)
        }
    }
}

fn print_result(verification: &AuditVerification) -> ExitCode {
    let AuditVerification {
        ok,
        entries,
        head,
        broken_at,
    } = verification;
    let head = head.as_deref().unwrap_or("none");
    match (ok, broken_at) {
        (true, _) => {
            println!("ok: {entries} entries, head {head}");
            return ExitCode::SUCCESS;
        }
        (false, Some(seq)) => {
            println!("broken at entry {seq}; the {entries} entries before it are intact")
        }
        (false, None) => println!(
            "the chain is intact but does not contain the given hash: it was rewritten ({entries} entries, head {head})"
        ),
    }
    ExitCode::FAILURE
}
