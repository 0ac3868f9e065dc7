//! What a demo must find again in its folder: its secrets, and the port that its runs report to.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::keys::admin_token;

const FILE: &str = "demo.json";

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Keepsake {
    pub access_code: String,
    pub token_secret: String,
    /// 0 as long as none was taken.
    pub port: u16,
}

impl Keepsake {
    /// The one in this folder, or a fresh one.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
            }
            Err(_) => {
                let random = || admin_token::fresh().map_err(anyhow::Error::msg);
                let access_code = random()?.expose().chars().take(10).collect();
                Ok(Self {
                    access_code,
                    token_secret: random()?.expose().to_owned(),
                    port: 0,
                })
            }
        }
    }

    /// Keeps it, whole or not at all.
    pub fn keep(&self, dir: &Path, port: u16) -> anyhow::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        let kept = Self {
            port,
            ..self.clone()
        };
        file.write_all(serde_json::to_string_pretty(&kept)?.as_bytes())?;
        file.persist(dir.join(FILE))?;
        Ok(())
    }
}
