//! Identity of a data folder among those that share a place for backups.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::restore::copy_owner;

/// File in the data folder. It is not part of backups.
const FILE: &str = "standby.json";

/// Its next content, until that is complete.
const NEW_FILE: &str = "standby.json.new";

/// Identity of a data folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyIdentity {
    /// Random ID.
    pub id: String,
    /// Number under which the store in the folder works with the place; `None` before it does.
    pub epoch: Option<u64>,
    /// Number of the last renewal that a service on the folder has begun. A copy of the folder has a lower one than the
    /// record in the place. `None` before the first.
    #[serde(default)]
    pub renewal: Option<u64>,
}

impl StandbyIdentity {
    /// Reads the identity of a data folder, and creates one if it has none.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn of_folder(dir: &Path) -> io::Result<Self> {
        if let Some(identity) = Self::read(dir)? {
            return Ok(identity);
        }
        let created = Self {
            id: format!("{:032x}", fastrand::u128(..)),
            epoch: None,
            renewal: None,
        };
        created.save(dir)?;
        Ok(created)
    }

    /// Reads the identity of a data folder. `None` if it has none.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(dir.join(FILE)) {
            Ok(json) => Ok(Some(serde_json::from_slice(&json)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the identity, durably.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let (path, temporary) = (dir.join(FILE), dir.join(NEW_FILE));
        let mut options = File::options();
        let options = options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        copy_owner(dir, &temporary)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(dir)?.sync_all()
    }
}
