//! `agent-implement audit verify`: whether the record of who did what is whole.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::domain::audit::Verdict;
use crate::store::{FILE_NAME, Store, StoreError, audit};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Look at every entry of the audit: exit 0 when none was changed, removed or moved, else 1 with
    /// the number of the first that was.
    Verify {
        /// A hash that the log printed earlier; it must be in the chain, or the chain was made anew.
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
        /// Folder of the store.
        #[arg(long, env = "DATA_DIR", default_value = "./data")]
        data_dir: PathBuf,
    },
}

pub fn audit(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Command::Verify { head, data_dir } = arguments.command;
    let verdict = verify(&data_dir, head.as_deref())?;
    Ok(tell(&verdict))
}

fn verify(data_dir: &Path, head: Option<&str>) -> anyhow::Result<Verdict> {
    let file = data_dir.join(FILE_NAME);
    if !file.exists() {
        bail!("there is no store at {}", file.display());
    }
    match Store::open(data_dir) {
        Ok(store) => Ok(store.read(|tx| audit::verify(tx, head))?),
        Err(StoreError::InUse { .. }) => ask_running(data_dir, head),
        Err(error) => Err(error).context("opening the store"),
    }
}

/// Asks the service that has the store open.
fn ask_running(data_dir: &Path, _head: Option<&str>) -> anyhow::Result<Verdict> {
    bail!(
        "the service has the store in {} open: ask it at GET /api/audit/verify, or stop it first",
        data_dir.display()
    )
}

fn tell(verdict: &Verdict) -> ExitCode {
    let Verdict {
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
