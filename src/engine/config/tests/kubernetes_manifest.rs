//! The settings of packaging/kubernetes: the ConfigMap of the manifest and the Secret of the README.

use serde_json::Value;

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/kubernetes");

fn text(file: &str) -> String {
    std::fs::read_to_string(Path::new(FOLDER).join(file)).unwrap()
}

/// Returns the settings of the ConfigMap as options.
fn config_map() -> Vec<String> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text("service.yaml")).unwrap();
    let mut objects = objects.into_iter();
    let map = objects
        .find(|object| object["kind"] == "ConfigMap")
        .unwrap();
    let options = map["data"].as_object().unwrap().iter();
    options
        .map(|(name, value)| {
            let flag = name.to_lowercase().replace('_', "-");
            format!("--{flag}={}", value.as_str().unwrap())
        })
        .collect()
}

/// Returns the names of the keys that the README puts into the Secret.
fn secret_names() -> Vec<String> {
    let readme = text("README.md");
    let command = readme.split_once("create secret generic").unwrap().1;
    let (command, _) = command.split_once("```").unwrap();
    let keys = command.split("--from-").skip(1);
    keys.map(|key| {
        let (_, key) = key.split_once('=').unwrap();
        let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
        key.chars().take_while(|c| is_part(*c)).collect()
    })
    .collect()
}

#[test]
fn the_config_map_and_the_secret_of_the_readme_are_a_valid_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let names = secret_names();
    for name in &names {
        let value = match name.as_str() {
            "GITHUB_APP_PRIVATE_KEY" => test_support::app_key(),
            "SECRETS_KEY" => data_encoding::BASE64.encode(&[7; 32]),
            name => format!("{name}-of-the-secret-of-the-cluster"),
        };
        std::fs::write(folder.path().join(name), value).unwrap();
    }
    let folder = folder.path().display().to_string();
    let options = config_map();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let pod = [
        ("CREDENTIALS_DIRECTORY", folder.as_str()),
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ];
    let config = read(&options, &pod).unwrap();
    assert!(config.kubernetes.is_some() && config.has_callbacks());
    assert!(config.credentials.github.is_some());
    assert!(config.admin_access_code.is_some() && config.secrets_key.is_some());
    assert!(config.log_keep_days > 0 && config.session_image.is_some());
    assert_eq!(
        config.notices.secret_files.len(),
        names.len(),
        "a file of the Secret is not read"
    );
}
