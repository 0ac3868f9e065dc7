//! Stored settings that take effect at a restart.

use crate::app::Core;
use domain::audit::{Action, Actor};
use domain::mapping::is_plain_name;
use domain::time::Timestamp;
use store::settings::{self, OperatorSetting};
use store::{StoreResult, WriteTx, audit};

/// Valid value of a setting; an empty value clears it.
#[derive(Debug, Clone)]
pub struct SettingChange {
    setting: OperatorSetting,
    value: String,
}

impl SettingChange {
    /// Creates a change. Only plain names are valid, because settings become parts of URLs.
    ///
    /// # Errors
    /// Returns the violated rule.
    pub fn new(setting: OperatorSetting, value: &str) -> Result<Self, String> {
        let is_plain = is_plain_name(value, |c| c.is_ascii_alphanumeric() || c == '-');
        if value.is_empty() || is_plain {
            let value = value.to_owned();
            Ok(Self { setting, value })
        } else {
            Err(Self::rule(setting))
        }
    }

    /// Setting that is changed.
    pub(super) fn setting(&self) -> OperatorSetting {
        self.setting
    }

    /// New value. Empty if the setting is cleared.
    pub(super) fn value(&self) -> &str {
        &self.value
    }

    /// Rule for the values of a setting.
    pub fn rule(setting: OperatorSetting) -> String {
        let name = setting.name();
        format!("{name} must be letters, digits and '-', beginning with a letter or digit")
    }
}

/// Stores settings. Nothing is stored or recorded without changes.
///
/// # Errors
/// Fails if the store cannot be written.
pub async fn change(core: &Core, actor: Actor, changes: Vec<SettingChange>) -> StoreResult<()> {
    let now = core.now();
    let put = core
        .store
        .write(move |tx| put_settings(tx, &actor, &changes, now));
    put.await
}

/// Stores settings and records them in the audit log.
pub(super) fn put_settings(
    tx: &WriteTx<'_>,
    actor: &Actor,
    changes: &[SettingChange],
    now: Timestamp,
) -> StoreResult<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut details = Vec::new();
    for SettingChange { setting, value } in changes {
        settings::put(tx, *setting, value)?;
        details.push(format!("{}={value}", setting.name()));
    }
    let event = actor.audit_event(Action::SettingsChanged, "");
    audit::append(tx, &event.with_detail(details.join(" ")), now)
}
