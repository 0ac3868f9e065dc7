//! What operators have set up: asked of the running service, else read in its store.

use serde_json::Value;

use crate::cli::service::{Reached, Service, reach};
use domain::checkup::Finding;
use domain::mapping::{Input, Mapping};
use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use engine::app::Vault;
use engine::clock::Clock;
use engine::config::Config;
use engine::doctor::Standing;
use store::settings::{self, Setting};
use store::{FILE_NAME, KEY_FILE, Store, StoreResult, mappings, secrets};

use super::identity;

/// The stored part of a set-up.
#[derive(Debug, Default)]
pub(super) struct Setup {
    mappings: Vec<Mapping>,
    mode: Option<RunnerMode>,
    settings: Vec<(Setting, String)>,
}

const SETTINGS: [Setting; 2] = [Setting::VmSessionsApp, Setting::VmSessionsRegion];

/// Finds it, and says where.
pub(super) async fn find(config: &Config) -> (Setup, Standing, Vec<Finding>) {
    let check = "store";
    let dir = &config.data_dir;
    let missing = !dir.join(FILE_NAME).exists();
    if missing && !matches!(Service::connect(dir).await, Ok(Some(_))) {
        let found = Finding::ok(check, "there is none yet; the first start makes it");
        return (Setup::default(), Standing::Stopped, vec![found]);
    }
    let (read, standing) = match reach(dir).await {
        Ok(Reached::Running(service)) => {
            let read = Setup::asked(&service).await;
            let mut found = vec![Finding::ok(check, "the service has it open")];
            found.extend(identity::compare(config, &service).await);
            (read.map(|setup| (setup, found)), Standing::Running)
        }
        Ok(Reached::Stopped(store)) => {
            let read = Setup::read(&store).map_err(anyhow::Error::from);
            let opened = vec![Finding::ok(check, "it opens"), sealed(config, &store)];
            (read.map(|setup| (setup, opened)), Standing::Stopped)
        }
        Err(error) => (Err(error), Standing::Stopped),
    };
    match read {
        Ok((setup, found)) => (setup, standing, found),
        Err(error) => {
            let found = Finding::error(check, format!("{error:#}"))
                .because("Nothing works without the store, and the projects could not be checked.")
                .mend("Run this as the service's user or root, stop what holds the store, or restore a backup.");
            (Setup::default(), standing, vec![found])
        }
    }
}

/// Whether the key in force opens the stored secrets.
fn sealed(config: &Config, store: &Store) -> Finding {
    let check = "stored-secrets";
    let rows = match store.read(secrets::all) {
        Ok(rows) if rows.is_empty() => return Finding::ok(check, "none are stored"),
        Ok(rows) => rows,
        Err(error) => return Finding::error(check, error.to_string()).mend("Restore a backup."),
    };
    let in_file = || {
        let text = std::fs::read_to_string(config.data_dir.join(KEY_FILE)).ok()?;
        Some(Secret::new(text.trim()))
    };
    let key = config.secrets_key.clone().or_else(in_file);
    if key.is_some_and(|key| Vault::opens(&key, &rows)) {
        return Finding::ok(check, format!("the key opens all {}", rows.len()));
    }
    Finding::error(
        check,
        format!("no key opens the {} stored secrets", rows.len()),
    )
    .because("The service does not start, so that they are not lost.")
    .mend("Put secrets.key back into DATA_DIR, or set SECRETS_KEY to what it held.")
}

impl Setup {
    async fn asked(service: &Service) -> anyhow::Result<Self> {
        let body = |found: Option<Value>| found.unwrap_or(Value::Null);
        let mapped = body(service.get("/api/mappings").await?);
        let now = Clock::Machine.now();
        let views = mapped.as_object().into_iter().flat_map(|all| all.values());
        let mappings = views.map(|view| Ok(Input::read(view.clone())?.validate(None, now)?));
        let mappings = mappings.collect::<anyhow::Result<_>>()?;
        let mode = body(service.get("/api/runner-mode").await?);
        let stored = body(service.get("/api/settings").await?);
        let of = |setting: Setting| {
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
    pub(super) async fn into_store(self) -> StoreResult<Store> {
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
