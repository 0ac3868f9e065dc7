//! What a demo must find again in its folder: where its tickets are, its secrets, and the port that
//! its runs report to.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use domain::crypto::admin_token;
use fake_vendors::demo::Tracker;

const FILE: &str = "demo.json";

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DemoState {
    #[serde(default)]
    pub tracker: Tracker,
    pub access_code: String,
    pub token_secret: String,
    /// What webhooks are signed with, and what a trigger shows. Older demos have none.
    #[serde(rename = "hookSecret", default)]
    pub webhook_secret: Option<String>,
    /// 0 as long as none was taken.
    pub port: u16,
}

impl DemoState {
    /// The one in this folder, or a fresh one.
    ///
    /// # Errors
    /// When the folder's demo has its tickets elsewhere, or cannot be read.
    pub fn open(dir: &Path, tracker: Tracker) -> anyhow::Result<Self> {
        let path = dir.join(FILE);
        let Ok(text) = std::fs::read_to_string(&path) else {
            return Self::fresh(tracker);
        };
        let kept: Self =
            serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        ensure!(
            kept.tracker == tracker,
            "the demo in {} has its tickets on {}: add --system {}, or take another folder",
            dir.display(),
            kept.tracker.name(),
            kept.tracker.name().to_lowercase(),
        );
        Ok(kept)
    }

    fn fresh(tracker: Tracker) -> anyhow::Result<Self> {
        let random = || admin_token::generate_token().map_err(anyhow::Error::msg);
        Ok(Self {
            tracker,
            access_code: random()?.expose().chars().take(10).collect(),
            token_secret: random()?.expose().to_owned(),
            webhook_secret: Some(random()?.expose().to_owned()),
            port: 0,
        })
    }

    /// Keeps it, whole or not at all.
    pub fn save(&self, dir: &Path, port: u16) -> anyhow::Result<()> {
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
