//! State that a demo saves in its folder: ticketing system, secrets, and the port that its runs report to.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use domain::crypto::admin_token;
use fake_vendors::demo::Tracker;

/// Name of the state file.
const FILE: &str = "demo.json";

/// Saved state of a demo.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DemoState {
    /// Ticketing system with the tickets.
    #[serde(default)]
    pub tracker: Tracker,
    /// Access code of the panel.
    pub access_code: String,
    /// Secret that run tokens are derived from.
    pub token_secret: String,
    /// Secret of the webhooks and of the gap-fill trigger. `None` in demos of older versions.
    #[serde(rename = "hookSecret", default)]
    pub webhook_secret: Option<String>,
    /// Port of the service; 0 until one is assigned.
    pub port: u16,
}

impl DemoState {
    /// Loads the state in this folder, or creates a new one.
    ///
    /// # Errors
    /// If the state cannot be read or belongs to a demo with another ticketing system.
    pub(super) fn open(dir: &Path, tracker: Tracker) -> anyhow::Result<Self> {
        let path = dir.join(FILE);
        let Ok(text) = std::fs::read_to_string(&path) else {
            return Self::generate(tracker);
        };
        let state: Self = serde_json::from_slice(text.as_bytes())
            .with_context(|| format!("reading {}", path.display()))?;
        ensure!(
            state.tracker == tracker,
            "the demo in {} has its tickets in {}: add --system {}, or use another folder",
            dir.display(),
            state.tracker.name(),
            state.tracker.name().to_lowercase(),
        );
        Ok(state)
    }

    fn generate(tracker: Tracker) -> anyhow::Result<Self> {
        let random = || admin_token::generate_token().map_err(anyhow::Error::msg);
        Ok(Self {
            tracker,
            access_code: random()?.expose().chars().take(10).collect(),
            token_secret: random()?.expose().to_owned(),
            webhook_secret: Some(random()?.expose().to_owned()),
            port: 0,
        })
    }

    /// Saves the state with this port, atomically.
    pub(super) fn save(&self, dir: &Path, port: u16) -> anyhow::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        let state = Self {
            port,
            ..self.clone()
        };
        file.write_all(serde_json::to_string_pretty(&state)?.as_bytes())?;
        file.persist(dir.join(FILE))?;
        Ok(())
    }
}
