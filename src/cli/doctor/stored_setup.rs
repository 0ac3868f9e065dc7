//! What operators have set up: asked of the running service, else read in its store.

use serde_json::Value;

use crate::cli::local_service::{ControlClient, ServiceOrStore, connect_or_open};
use domain::check_result::CheckResult;
use domain::mapping::{Mapping, MappingInput};
use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use engine::app::Vault;
use engine::clock::Clock;
use engine::config::Config;
use engine::doctor::ServiceState;
use store::settings::{self, OperatorSetting};
use store::{SECRETS_KEY_FILE, STORE_FILE, Store, StoreResult, mappings, secrets};

use super::callback_identity;

/// The stored part of a set-up.
#[derive(Debug, Default)]
pub(super) struct StoredSetup {
    mappings: Vec<Mapping>,
    mode: Option<RunnerMode>,
    settings: Vec<(OperatorSetting, String)>,
}

const SETTINGS: [OperatorSetting; 2] = [
    OperatorSetting::VmSessionsApp,
    OperatorSetting::VmSessionsRegion,
];

/// Finds it, and says where.
pub(super) async fn load(config: &Config) -> (StoredSetup, ServiceState, Vec<CheckResult>) {
    let check = "store";
    let dir = &config.data_dir;
    let missing = !dir.join(STORE_FILE).exists();
    if missing && !matches!(ControlClient::connect(dir).await, Ok(Some(_))) {
        let found = CheckResult::ok(check, "there is none yet; the first start makes it");
        return (StoredSetup::default(), ServiceState::Stopped, vec![found]);
    }
    let (read, standing) = match connect_or_open(dir).await {
        Ok(ServiceOrStore::Running(service)) => {
            let read = StoredSetup::asked(&service).await;
            let mut found = vec![CheckResult::ok(check, "the service has it open")];
            found.extend(callback_identity::check(config, &service).await);
            (read.map(|setup| (setup, found)), ServiceState::Running)
        }
        Ok(ServiceOrStore::Stopped(store)) => {
            let read = StoredSetup::read(&store).map_err(anyhow::Error::from);
            let opened = vec![CheckResult::ok(check, "it opens"), sealed(config, &store)];
            (read.map(|setup| (setup, opened)), ServiceState::Stopped)
        }
        Err(error) => (Err(error), ServiceState::Stopped),
    };
    match read {
        Ok((setup, found)) => (setup, standing, found),
        Err(error) => {
            let found = CheckResult::error(check, format!("{error:#}"))
                .with_impact("Nothing works without the store, and the projects could not be checked.")
                .with_remedy("Run this as the service's user or root, stop what holds the store, or restore a backup.");
            (StoredSetup::default(), standing, vec![found])
        }
    }
}

/// Whether the key in force opens the stored secrets.
fn sealed(config: &Config, store: &Store) -> CheckResult {
    let check = "stored-secrets";
    let rows = match store.read(secrets::all) {
        Ok(rows) if rows.is_empty() => return CheckResult::ok(check, "none are stored"),
        Ok(rows) => rows,
        Err(error) => {
            return CheckResult::error(check, error.to_string()).with_remedy("Restore a backup.");
        }
    };
    let in_file = || {
        let text = std::fs::read_to_string(config.data_dir.join(SECRETS_KEY_FILE)).ok()?;
        Some(Secret::new(text.trim()))
    };
    let key = config.secrets_key.clone().or_else(in_file);
    if key.is_some_and(|key| Vault::can_open(&key, &rows)) {
        return CheckResult::ok(check, format!("the key opens all {}", rows.len()));
    }
    CheckResult::error(
        check,
        format!("no key opens the {} stored secrets", rows.len()),
    )
    .with_impact("The service does not start, so that they are not lost.")
    .with_remedy("Put secrets.key back into DATA_DIR, or set SECRETS_KEY to what it held.")
}

impl StoredSetup {
    async fn asked(service: &ControlClient) -> anyhow::Result<Self> {
        let body = |found: Option<Value>| found.unwrap_or(Value::Null);
        let mapped = body(service.get("/api/mappings").await?);
        let now = Clock::System.now();
        let views = mapped.as_object().into_iter().flat_map(|all| all.values());
        let mappings = views.map(|view| Ok(MappingInput::read(view.clone())?.validate(None, now)?));
        let mappings = mappings.collect::<anyhow::Result<_>>()?;
        let mode = body(service.get("/api/runner-mode").await?);
        let stored = body(service.get("/api/settings").await?);
        let of = |setting: OperatorSetting| {
            let value = stored[setting.name()]["storedValue"].as_str()?;
            Some((setting, value.to_owned()))
        };
        Ok(Self {
            mappings,
            mode: mode["stored"].as_str().and_then(RunnerMode::parse),
            settings: SETTINGS.into_iter().filter_map(of).collect(),
        })
    }

    fn read(store: &Store) -> StoreResult<Self> {
        store.read(|tx| {
            let mut kept = Vec::new();
            for setting in SETTINGS {
                kept.extend(settings::get(tx, setting)?.map(|value| (setting, value)));
            }
            Ok(Self {
                mappings: mappings::all(tx)?,
                mode: settings::runner_mode(tx)?,
                settings: kept,
            })
        })
    }

    /// A store in memory that holds nothing else.
    pub(super) async fn into_memory_store(self) -> StoreResult<Store> {
        let store = Store::in_memory()?;
        let filled = store.write(move |tx| {
            for mapping in &self.mappings {
                mappings::put(tx, mapping)?;
            }
            for (setting, value) in &self.settings {
                settings::put(tx, *setting, value)?;
            }
            match self.mode {
                Some(mode) => settings::put_runner_mode(tx, mode),
                None => Ok(()),
            }
        });
        filled.await?;
        Ok(store)
    }
}
