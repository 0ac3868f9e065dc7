//! Identity of a data folder among those that share a place for backups.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::restore::copy_owner;

/// File in the data folder. It is not part of backups.
const FILE: &str = "standby.json";

/// Identity of a data folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyIdentity {
    /// Random ID.
    pub id: String,
    /// Number under which the store in the folder works with the place; `None` before it does.
    pub epoch: Option<u64>,
}

impl StandbyIdentity {
    /// Reads the identity of a data folder, and creates one if it has none.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn of_folder(dir: &Path) -> io::Result<Self> {
        match fs::read(dir.join(FILE)) {
            Ok(json) => Ok(serde_json::from_slice(&json)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let created = Self {
                    id: format!("{:032x}", fastrand::u128(..)),
                    epoch: None,
                };
                created.save(dir)?;
                Ok(created)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the identity, durably.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let mut file = NamedTempFile::new_in(dir)?;
        serde_json::to_writer(&mut file, self)?;
        copy_owner(dir, file.path())?;
        file.as_file().sync_all()?;
        file.persist(dir.join(FILE))?;
        File::open(dir)?.sync_all()
    }
}
