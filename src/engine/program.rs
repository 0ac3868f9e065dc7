//! Program of this process, as runs fetch it.
//!
//! A run in a public image has no program. Its workflow fetches it from `GET /runner/program` and compares it
//! with the SHA-256 in the dispatch. Both come from `/proc/self/exe`: the file that this process executes. The
//! kernel keeps it open and lets nobody write to it, also if an upgrade has put another file in its place. So
//! the hash is computed once.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use crate::app::Core;
use domain::crypto::Sha256Hasher;
use domain::run_options::RunOptions;

/// File that this process executes.
const RUNNING_PROGRAM: &str = "/proc/self/exe";

/// Maximum number of downloads at a time.
const MAX_DOWNLOADS: usize = 8;

/// Size of the parts that are hashed, in bytes.
const PART: usize = 256 << 10;

/// Program of this process.
pub struct OwnProgram {
    path: PathBuf,
    facts: OnceCell<ProgramFacts>,
    downloads: Arc<Semaphore>,
}

/// Hash and size of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFacts {
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

impl OwnProgram {
    /// Describes the program at `path`, or the running one.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path: path.unwrap_or_else(|| RUNNING_PROGRAM.into()),
            facts: OnceCell::new(),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
        }
    }

    /// Returns the target that the program runs on, as a target triple of Rust. A static program runs where one
    /// with glibc does.
    pub fn target() -> String {
        format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
    }

    /// Returns hash and size.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn facts(&self) -> io::Result<&ProgramFacts> {
        let path = self.path.clone();
        let read = async || {
            let facts = tasks::spawn_blocking(move || ProgramFacts::read(&path));
            facts.await.map_err(io::Error::other)?
        };
        self.facts.get_or_try_init(read).await
    }

    /// Opens the program for reading.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub async fn open(&self) -> io::Result<tokio::fs::File> {
        tokio::fs::File::open(&self.path).await
    }

    /// Reserves one of the downloads at a time. `None` if all are in use.
    pub fn reserve_download(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.downloads).try_acquire_owned().ok()
    }
}

impl ProgramFacts {
    fn read(path: &std::path::Path) -> io::Result<Self> {
        let mut file = std::fs::File::open(path)?;
        let (mut hasher, mut size, mut part) = (Sha256Hasher::default(), 0, vec![0; PART]);
        loop {
            let read = file.read(&mut part)?;
            if read == 0 {
                let sha256 = hasher.finish_hex();
                return Ok(Self { sha256, size });
            }
            hasher.update(&part[..read]);
            size += read as u64;
        }
    }
}

/// Adds what a CI run needs to fetch the program. Without an address to fetch it from, nothing is added: the
/// image of the run must contain it.
pub(crate) async fn with_program(core: &Core, options: RunOptions) -> RunOptions {
    let (release, has_callbacks) = (&core.config.runner_program, core.config.has_callbacks());
    if release.is_none() && !has_callbacks {
        return options;
    }
    let stated = release.as_ref().and_then(|release| release.sha256.clone());
    let sha256 = match stated {
        Some(sha256) => sha256,
        None => match core.program.facts().await {
            Ok(facts) => facts.sha256.clone(),
            Err(error) => {
                tracing::error!(%error, "Failed to read the own program; runs cannot fetch it.");
                return options;
            }
        },
    };
    RunOptions {
        program_sha256: Some(sha256),
        program_url: release.as_ref().map(|release| release.url.clone()),
        ..options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::crypto::sha256_hex;

    #[tokio::test]
    async fn hashes_a_file_of_several_parts() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "x".repeat(PART * 2 + 7);
        std::fs::write(file.path(), &text).unwrap();
        let program = OwnProgram::new(Some(file.path().to_owned()));
        let expected = ProgramFacts {
            sha256: sha256_hex(&text),
            size: text.len() as u64,
        };
        assert_eq!(program.facts().await.unwrap(), &expected);
    }

    #[tokio::test]
    async fn the_running_program_is_the_default_and_downloads_are_limited() {
        let program = OwnProgram::new(None);
        let own = std::env::current_exe().unwrap().metadata().unwrap().len();
        assert_eq!(program.facts().await.unwrap().size, own);
        let reserved: Vec<_> = (0..MAX_DOWNLOADS)
            .map(|_| program.reserve_download().unwrap())
            .collect();
        assert!(program.reserve_download().is_none());
        drop(reserved);
        assert!(program.reserve_download().is_some());
    }
}
