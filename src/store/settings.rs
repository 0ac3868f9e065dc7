//! Settings that operators changed at run time. Environment variables override them.

use domain::runner_mode::RunnerMode;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::SETTINGS;

/// Key of the runner mode.
const RUNNER_MODE: &str = "runnerMode";

/// Setting with a text value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorSetting {
    /// Fly.io app of the session machines.
    VmSessionsApp,
    /// Fly.io region of the session machines.
    VmSessionsRegion,
}

impl OperatorSetting {
    /// All settings.
    pub const ALL: [Self; 2] = [Self::VmSessionsApp, Self::VmSessionsRegion];

    /// Name in the API, also the key of the stored row.
    pub fn name(self) -> &'static str {
        match self {
            OperatorSetting::VmSessionsApp => "vmSessionsApp",
            OperatorSetting::VmSessionsRegion => "vmSessionsRegion",
        }
    }
}

/// Stored value of a setting.
pub fn get(tx: &impl ReadableTx, setting: OperatorSetting) -> StoreResult<Option<String>> {
    SETTINGS.get(tx, setting.name())
}

/// Stores a setting. An empty text removes it.
pub fn put(tx: &WriteTx<'_>, setting: OperatorSetting, value: &str) -> StoreResult<()> {
    if value.is_empty() {
        return SETTINGS.remove(tx, setting.name()).map(drop);
    }
    SETTINGS.put(tx, setting.name(), &value.to_owned())
}

/// Stored runner mode. `None` if none is stored or this version does not know it.
pub fn runner_mode(tx: &impl ReadableTx) -> StoreResult<Option<RunnerMode>> {
    let stored = SETTINGS.get(tx, RUNNER_MODE)?;
    Ok(stored.and_then(|text| RunnerMode::parse(&text)))
}

/// Stores the runner mode.
pub fn put_runner_mode(tx: &WriteTx<'_>, mode: RunnerMode) -> StoreResult<()> {
    SETTINGS.put(tx, RUNNER_MODE, &mode.as_str().to_owned())
}
