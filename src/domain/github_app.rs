//! GitHub App of the service: its permissions, its events, and the manifest that creates it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Permissions that the App needs on every mapped repository. See docs/install.md#github-app.
pub const PERMISSIONS: [(&str, &str); 8] = [
    ("actions", "write"),
    ("contents", "write"),
    ("pull_requests", "write"),
    ("issues", "write"),
    ("workflows", "write"),
    ("checks", "read"),
    ("statuses", "read"),
    ("metadata", "read"),
];

/// Events that the App must receive.
pub const EVENTS: [&str; 10] = [
    "check_run",
    "check_suite",
    "issue_comment",
    "issues",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "pull_request_review_thread",
    "status",
    "workflow_run",
];

/// Maximum length of the name of an App.
const MAX_NAME: usize = 34;

/// Maximum length of the code that GitHub sends with the person back to the service.
const MAX_CODE: usize = 200;

/// Path of the webhook of the repository host.
pub const WEBHOOK_PATH: &str = "/api/repo-host/webhook";

/// Address of a webhook that is switched off, because GitHub requires one.
const NO_WEBHOOK_URL: &str = "https://agent-implement.invalid/api/repo-host/webhook";

/// Addresses of the service in a manifest.
#[derive(Debug, Clone, Copy)]
pub struct ManifestAddresses<'a> {
    /// Address at which GitHub reaches the service; `None` switches the webhook off.
    pub public_url: Option<&'a str>,
    /// Address to which GitHub sends the person back.
    pub redirect_url: &'a str,
}

/// Returns which of the needed permissions are not granted, as `name: level`.
pub fn missing_permissions(granted: &BTreeMap<String, String>) -> Vec<String> {
    let is_granted = |(name, level): &&(&str, &str)| {
        let has = granted.get(*name).map(String::as_str);
        has == Some(level) || matches!(has, Some("write" | "admin"))
    };
    let missing = PERMISSIONS.iter().filter(|one| !is_granted(one));
    missing
        .map(|(name, level)| format!("{name}: {level}"))
        .collect()
}

/// Returns which of the needed events are not in this list.
pub fn missing_events(events: &[String]) -> Vec<&'static str> {
    let is_missing = |event: &&str| !events.iter().any(|one| one == event);
    EVENTS.into_iter().filter(is_missing).collect()
}

/// Returns the manifest from which GitHub creates the App. The person can change the name on GitHub's page.
///
/// `suffix` keeps names apart, which are unique on GitHub.
pub fn manifest(suffix: &str, addresses: ManifestAddresses<'_>) -> Value {
    let name: String = format!("Agent Implement {suffix}")
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-'))
        .take(MAX_NAME)
        .collect();
    let permissions = PERMISSIONS.map(|(name, level)| (name.to_owned(), Value::from(level)));
    let hook_url = addresses.public_url.map_or_else(
        || NO_WEBHOOK_URL.to_owned(),
        |public_url| format!("{public_url}{WEBHOOK_PATH}"),
    );
    json!({
        "name": name.trim(),
        "url": addresses.public_url.unwrap_or("https://github.com"),
        "description": "Turns labelled tickets into reviewed pull requests.",
        "hook_attributes": {"url": hook_url, "active": addresses.public_url.is_some()},
        "redirect_url": addresses.redirect_url,
        "public": false,
        "default_permissions": Map::from_iter(permissions),
        "default_events": EVENTS,
    })
}

/// Returns the path of GitHub's page for a new App, of an organization or of the person.
///
/// # Errors
/// The name cannot be that of an organization.
pub fn creation_path(organization: Option<&str>) -> Result<String, String> {
    let Some(name) = organization.map(str::trim).filter(|name| !name.is_empty()) else {
        return Ok("/settings/apps/new".to_owned());
    };
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    match is_plain && name.len() <= 100 {
        true => Ok(format!("/organizations/{name}/settings/apps/new")),
        false => Err("organization must be the name of an organization on GitHub".to_owned()),
    }
}

/// Whether a text can be a code of GitHub, which becomes a part of a path.
pub fn is_code(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty() && text.len() <= MAX_CODE && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        let rows = rows.iter();
        rows.map(|(name, level)| ((*name).to_owned(), (*level).to_owned()))
            .collect()
    }

    #[test]
    fn write_includes_read() {
        let mut all = granted(&PERMISSIONS);
        assert_eq!(missing_permissions(&all), [""; 0]);
        all.insert("checks".to_owned(), "write".to_owned());
        all.insert("contents".to_owned(), "read".to_owned());
        all.remove("issues");
        assert_eq!(
            missing_permissions(&all),
            ["contents: write", "issues: write"]
        );
    }

    #[test]
    fn a_manifest_has_the_permissions_and_no_webhook_without_an_address() {
        let redirect_url = "http://127.0.0.1:8080/admin/github-app/created";
        let local = ManifestAddresses {
            public_url: None,
            redirect_url,
        };
        let found = manifest("1a2b\"</script>", local);
        assert_eq!(found["name"], "Agent Implement 1a2bscript");
        assert_eq!(found["hook_attributes"]["active"], false);
        assert_eq!(found["public"], false);
        let permissions = found["default_permissions"].as_object().unwrap();
        assert_eq!(permissions.len(), PERMISSIONS.len());
        let public = ManifestAddresses {
            public_url: Some("https://a.example"),
            ..local
        };
        let hook = &manifest("x", public)["hook_attributes"];
        assert_eq!(hook["url"], "https://a.example/api/repo-host/webhook");
        assert_eq!(hook["active"], true);
    }

    #[test]
    fn only_plain_names_and_codes_become_parts_of_paths() {
        assert_eq!(creation_path(None).unwrap(), "/settings/apps/new");
        assert_eq!(
            creation_path(Some(" acme-inc ")).unwrap(),
            "/organizations/acme-inc/settings/apps/new"
        );
        for bad in ["a/b", "a?b", "é", "..", "a b"] {
            assert!(creation_path(Some(bad)).is_err(), "{bad}");
        }
        assert!(is_code("0a1b-_"));
        for bad in ["", "a/b", "a?b", "..", "é", &"a".repeat(201)] {
            assert!(!is_code(bad), "{bad}");
        }
    }
}
