//! What operators changed at run time. The environment beats all of it.

use domain::runner_mode::RunnerMode;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::SETTINGS;

const RUNNER_MODE: &str = "runnerMode";

/// A setting that is a plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorSetting {
    VmSessionsApp,
    VmSessionsRegion,
}

impl OperatorSetting {
    /// Its name in the API, which is its key here.
    pub fn name(self) -> &'static str {
        match self {
            OperatorSetting::VmSessionsApp => "vmSessionsApp",
            OperatorSetting::VmSessionsRegion => "vmSessionsRegion",
        }
    }
}

pub fn get(tx: &impl ReadableTx, setting: OperatorSetting) -> StoreResult<Option<String>> {
    SETTINGS.get(tx, setting.name())
}

/// Stores a setting; an empty text clears it.
pub fn put(tx: &WriteTx<'_>, setting: OperatorSetting, value: &str) -> StoreResult<()> {
    if value.is_empty() {
        return SETTINGS.remove(tx, setting.name()).map(drop);
    }
    SETTINGS.put(tx, setting.name(), &value.to_owned())
}

/// The stored runner mode; one that this version does not know is none.
pub fn runner_mode(tx: &impl ReadableTx) -> StoreResult<Option<RunnerMode>> {
    let stored = SETTINGS.get(tx, RUNNER_MODE)?;
    Ok(stored.and_then(|text| RunnerMode::parse(&text)))
}

pub fn put_runner_mode(tx: &WriteTx<'_>, mode: RunnerMode) -> StoreResult<()> {
    SETTINGS.put(tx, RUNNER_MODE, &mode.as_str().to_owned())
}
