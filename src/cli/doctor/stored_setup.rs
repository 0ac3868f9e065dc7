//! Stored part of the setup, read from the running service or from its store.

use serde_json::Value;

use crate::cli::local_service::{ControlClient, ServiceOrStore, connect_or_open};
use domain::check_result::CheckResult;
use domain::connection::CredentialField;
use domain::mapping::{Mapping, MappingInput};
use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use engine::app::Vault;
use engine::clock::Clock;
use engine::config::Config;
use engine::doctor::ServiceState;
use store::secrets::SealedSecretRow;
use store::settings::{self, OperatorSetting};
use store::{SECRETS_KEY_FILE, STORE_FILE, Store, StoreResult, connections, mappings, secrets};

use super::callback_identity;

/// Mappings, runner mode and settings that operators stored.
#[derive(Debug, Default)]
pub(super) struct StoredSetup {
    mappings: Vec<Mapping>,
    mode: Option<RunnerMode>,
    settings: Vec<(OperatorSetting, String)>,
    /// Encrypted credentials of vendors.
    connections: Vec<(CredentialField, SealedSecretRow)>,
}

const SETTINGS: [OperatorSetting; 2] = [
    OperatorSetting::VmSessionsApp,
    OperatorSetting::VmSessionsRegion,
];

/// Loads the stored setup, the state of the service, and findings about the store.
pub(super) async fn load(config: &Config) -> (StoredSetup, ServiceState, Vec<CheckResult>) {
    let check = "store";
    let dir = &config.data_dir;
    let missing = !dir.join(STORE_FILE).exists();
    if missing && !matches!(ControlClient::connect(dir).await, Ok(Some(_))) {
        let finding = CheckResult::ok(check, "no store yet; the first start creates it");
        return (StoredSetup::default(), ServiceState::Stopped, vec![finding]);
    }
    let (loaded, service_state) = match connect_or_open(dir).await {
        Ok(ServiceOrStore::Running(service)) => {
            let setup = StoredSetup::from_service(&service).await;
            let mut findings = vec![CheckResult::ok(check, "open in the running service")];
            findings.extend(callback_identity::check(config, &service).await);
            (setup.map(|setup| (setup, findings)), ServiceState::Running)
        }
        Ok(ServiceOrStore::Stopped(store)) => {
            let setup = StoredSetup::from_store(&store).map_err(anyhow::Error::from);
            let findings = vec![
                CheckResult::ok(check, "the store can be opened"),
                check_stored_secrets(config, &store),
            ];
            (setup.map(|setup| (setup, findings)), ServiceState::Stopped)
        }
        Err(error) => (Err(error), ServiceState::Stopped),
    };
    match loaded {
        Ok((setup, findings)) => (setup, service_state, findings),
        Err(error) => {
            let finding = CheckResult::error(check, format!("{error:#}"))
                .with_impact("Nothing works without the store. The projects were not checked.")
                .with_remedy("Run this command as the service's user or as root, stop the process that holds the store, or restore a backup.");
            (StoredSetup::default(), service_state, vec![finding])
        }
    }
}

/// Checks that the configured key decrypts the stored secrets.
fn check_stored_secrets(config: &Config, store: &Store) -> CheckResult {
    let check = "stored-secrets";
    let rows = match store.read(secrets::all) {
        Ok(rows) if rows.is_empty() => return CheckResult::ok(check, "no secrets are stored"),
        Ok(rows) => rows,
        Err(error) => {
            return CheckResult::error(check, error.to_string()).with_remedy("Restore a backup.");
        }
    };
    if vault_key(config).is_some_and(|key| Vault::can_open(&key, &rows)) {
        return CheckResult::ok(
            check,
            format!("the key decrypts all {} stored secrets", rows.len()),
        );
    }
    CheckResult::error(
        check,
        format!("no key decrypts the {} stored secrets", rows.len()),
    )
    .with_impact("The service does not start, so that no secret is lost.")
    .with_remedy("Put secrets.key back into DATA_DIR, or set SECRETS_KEY to its content.")
}

/// Key of the stored secrets: configured, else in the data directory.
fn vault_key(config: &Config) -> Option<Secret> {
    let from_file = || {
        let text = std::fs::read_to_string(config.data_dir.join(SECRETS_KEY_FILE)).ok()?;
        Some(Secret::new(text.trim()))
    };
    config.secrets_key.clone().or_else(from_file)
}

impl StoredSetup {
    /// Returns the configuration with the key of the stored credentials. Without the right key they are left
    /// out.
    pub(super) fn with_key(&mut self, config: Config) -> Config {
        let rows: Vec<_> = self
            .connections
            .iter()
            .map(|(_, row)| row.clone())
            .collect();
        let key = vault_key(&config).filter(|key| Vault::can_open(key, &rows));
        if key.is_none() {
            self.connections.clear();
        }
        Config {
            secrets_key: key,
            ..config
        }
    }

    async fn from_service(service: &ControlClient) -> anyhow::Result<Self> {
        let body = |response: Option<Value>| response.unwrap_or(Value::Null);
        let mapped = body(service.get("/api/mappings").await?);
        let now = Clock::System.now();
        let views = mapped.as_object().into_iter().flat_map(|all| all.values());
        let mappings = views.map(|view| Ok(MappingInput::read(view.clone())?.validate(None, now)?));
        let mappings = mappings.collect::<anyhow::Result<_>>()?;
        let mode = body(service.get("/api/runner-mode").await?);
        let stored = body(service.get("/api/settings").await?);
        let stored_value = |setting: OperatorSetting| {
            let value = stored[setting.name()]["storedValue"].as_str()?;
            Some((setting, value.to_owned()))
        };
        Ok(Self {
            mappings,
            mode: mode["stored"].as_str().and_then(RunnerMode::parse),
            settings: SETTINGS.into_iter().filter_map(stored_value).collect(),
            connections: read_sealed(&body(service.get("/api/sealed-connections").await?)),
        })
    }

    fn from_store(store: &Store) -> StoreResult<Self> {
        store.read(|tx| {
            let mut values = Vec::new();
            for setting in SETTINGS {
                values.extend(settings::get(tx, setting)?.map(|value| (setting, value)));
            }
            Ok(Self {
                mappings: mappings::all(tx)?,
                mode: settings::runner_mode(tx)?,
                settings: values,
                connections: connections::all(tx)?,
            })
        })
    }

    /// Creates a store in memory that contains only this setup.
    pub(super) async fn into_memory_store(self) -> StoreResult<Store> {
        let store = Store::in_memory()?;
        let written = store.write(move |tx| {
            for mapping in &self.mappings {
                mappings::put(tx, mapping)?;
            }
            for (field, row) in &self.connections {
                connections::put(tx, *field, &row.secret)?;
            }
            for (setting, value) in &self.settings {
                settings::put(tx, *setting, value)?;
            }
            match self.mode {
                Some(mode) => settings::put_runner_mode(tx, mode),
                None => Ok(()),
            }
        });
        written.await?;
        Ok(store)
    }
}

/// Reads the encrypted credentials in a response of the service. Fields that this version does not know are left
/// out.
fn read_sealed(response: &Value) -> Vec<(CredentialField, SealedSecretRow)> {
    let fields = response.as_object().into_iter().flatten();
    let read = fields.filter_map(|(variable, sealed)| {
        let field = CredentialField::parse(variable)?;
        let sealed = serde_json::from_value(sealed.clone()).ok()?;
        Some((field, connections::row(field, sealed)))
    });
    read.collect()
}
