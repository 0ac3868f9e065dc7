mod container_network;
mod kubernetes_manifest;

use std::path::Path;

use super::sources::VariableNames;
use super::*;
use clap::Parser;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn read(flags: &[&str], files: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let options = Line::parse_from(std::iter::once("serve").chain(flags.iter().copied())).options;
    let files: Vec<(String, String)> = files
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let find = move |name: &str| {
        files
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
    };
    let mut sources = Sources::new(Box::new(find), VariableNames::Shared(Vec::new()));
    Config::without_problems(Config::build(options, &mut sources))
}

#[test]
fn an_empty_configuration_is_valid_and_disables_all_features() {
    let config = read(&[], &[]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert!(
        config.admin_access_code.is_none()
            && config.credentials.github.is_none()
            && !config.has_callbacks()
    );
    assert_eq!(config.dedup_window, Some(Duration::from_secs(24 * 3600)));
}

#[test]
fn reports_all_problems_at_once() {
    let flags = [
        "--port=x",
        "--poll-interval-ms=5",
        "--runner-token-secret=short",
        "--github-app-id=1",
        "--notify-type=pigeon",
        "--notify-digest-hour=24",
        "--log-format=xml",
        "--trusted-proxies=10.0.0.1,nowhere",
        "--runner-callback-base-url=ftp://x",
        "--secrets-key=too-short",
        "--runner-mode=docker",
        "--reaper-dry-run=perhaps",
        "--reaper-alert-threshold=many",
        "--session-image=a b",
        "--metrics=maybe",
        "--log-keep-days=4000",
    ];
    let error = read(&flags, &[]).unwrap_err().to_string();
    for problem in [
        "PORT must be a port number, not 'x'",
        "POLL_INTERVAL_MS must be at least 1000 milliseconds, not '5'",
        "RUNNER_TOKEN_SECRET must be at least 32 bytes long",
        "GITHUB_APP_ID is set and GITHUB_APP_PRIVATE_KEY is not",
        "NOTIFY_TYPE must be channel-a or channel-b",
        "NOTIFY_DIGEST_HOUR must be an hour from 0 to 23, or off, not '24'",
        "LOG_FORMAT must be text or json, not 'xml'",
        "TRUSTED_PROXIES must be a list of IP addresses and networks, not 'nowhere'",
        "SESSION_IMAGE must be the name of a container image, not 'a b'",
        "RUNNER_CALLBACK_BASE_URL must be an http or https address, not 'ftp://x'",
        "SECRETS_KEY: it must be 32 bytes in base64",
        "RUNNER_MODE must be one of: default, ci, vm, local, shadow, kubernetes, not 'docker'",
        "REAPER_DRY_RUN must be true or false, not 'perhaps'",
        "METRICS must be true or false, not 'maybe'",
        "LOG_KEEP_DAYS must be at most 3650",
        "REAPER_ALERT_THRESHOLD must be a whole number of machines, not 'many'",
    ] {
        assert!(error.contains(problem), "{problem:?} in {error}");
    }
    assert_eq!(error.lines().count(), 17);
}

#[test]
fn rejects_a_secret_that_is_too_short() {
    let flags = [
        "--admin-access-code=1234567",
        "--scm-webhook-secret=seven c",
        "--gap-fill-trigger-secret=x",
        // Vendors generate these themselves.
        "--linear-webhook-secret=x",
        "--jira-webhook-secret=x",
    ];
    assert_eq!(
        read(&flags, &[]).unwrap_err().problems(),
        [
            "SCM_WEBHOOK_SECRET must be at least 8 bytes long",
            "ADMIN_ACCESS_CODE must be at least 8 bytes long",
            "GAP_FILL_TRIGGER_SECRET must be at least 8 bytes long",
        ]
    );
    let long_enough = [
        "--admin-access-code=12345678",
        "--scm-webhook-secret=eight ch",
        "--gap-fill-trigger-secret=eight ch",
    ];
    assert!(read(&long_enough, &[]).is_ok());
}

#[test]
fn plain_http_to_other_machines_must_be_allowed() {
    let remote = [
        "--linear-api-key=k",
        "--linear-api-url=http://linear.example",
        "--linear-uploads-url=http://uploads.example",
        "--jira-site-url=http://jira.example",
        "--jira-email=a@b.c",
        "--jira-api-token=t",
        "--jira-api-url=HTTP://jira.example/x",
        "--github-token=t",
        "--github-api-url=http://10.0.0.1/api/v3",
        "--vm-api-url=http://[2001:db8::1]",
        "--runner-callback-base-url=http://172.17.0.1:8080",
        "--notify-webhook-url=http://chat.example/canary-path",
    ];
    let error = read(&remote, &[]).unwrap_err();
    let names = [
        "LINEAR_API_URL",
        "LINEAR_UPLOADS_URL",
        "JIRA_SITE_URL",
        "JIRA_API_URL",
        "GITHUB_API_URL",
        "NOTIFY_WEBHOOK_URL",
        "RUNNER_CALLBACK_BASE_URL",
        "VM_API_URL",
    ];
    let expected = names.map(|name| {
        format!(
            "{name} must be an https address: over plain http, anyone on the network path can read the \
             credentials (ALLOW_PLAIN_HTTP=true allows it)"
        )
    });
    assert_eq!(error.problems(), expected);
    let allowed = [&remote[..], &["--allow-plain-http=true"]].concat();
    assert_eq!(
        read(&allowed, &[]).unwrap().notices.plain_http_variables,
        names
    );

    let local = [
        "--runner-callback-base-url=http://127.0.0.1:8080",
        "--vm-api-url=http://localhost",
    ];
    assert!(
        read(&local, &[])
            .unwrap()
            .notices
            .plain_http_variables
            .is_empty()
    );
    let error = read(&["--allow-plain-http=perhaps"], &[]).unwrap_err();
    assert_eq!(
        error.problems(),
        ["ALLOW_PLAIN_HTTP must be true or false, not 'perhaps'"]
    );
}

#[test]
fn rejects_an_unknown_log_level() {
    for level in [
        "loud",
        "info,loud",
        "agent_implement",
        "agent_implement=loud",
        "debug trace",
    ] {
        let error = read(&["--log-level", level], &[]).unwrap_err();
        let start = "LOG_LEVEL must be error, warn, info, debug, trace, or a filter";
        assert!(error.problems()[0].starts_with(start), "{level}: {error}");
    }
    for level in ["warn", "DEBUG", "off", "info,engine=debug"] {
        assert!(read(&["--log-level", level], &[]).is_ok(), "{level}");
    }
    assert_eq!(read(&["--log-level="], &[]).unwrap().log_level, "info");
}

#[test]
fn leaves_out_invalid_values_and_keeps_the_rest() {
    let line = [
        "serve",
        "--poll-interval-ms=5",
        "--github-app-id=1",
        "--github-app-private-key=no pem",
        "--linear-api-key=k",
        "--linear-api-url=nowhere",
        "--jira-site-url=https://jira.example",
        "--jira-email=a@b.c",
        "--jira-api-token=t",
    ];
    let (config, values) = Config::from_options_lenient(Line::parse_from(line).options, None);
    assert_eq!(values.unwrap_err().problems().len(), 3);
    assert!(config.credentials.github.is_none() && config.credentials.linear.is_none());
    assert!(config.credentials.jira.is_some());
}

#[test]
fn reports_a_value_that_is_not_a_number_once() {
    let error = read(&["--poll-interval-ms=soon"], &[]).unwrap_err();
    assert_eq!(
        error.problems(),
        ["POLL_INTERVAL_MS must be at least 1000 milliseconds, not 'soon'"]
    );
}

#[test]
fn a_secret_comes_from_a_file_but_not_from_two_sources() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("code");
    std::fs::write(&path, "open sesame\n").unwrap();
    let file = path.to_str().unwrap();
    let config = read(&[], &[("ADMIN_ACCESS_CODE_FILE", file)]).unwrap();
    assert_eq!(config.admin_access_code.unwrap().expose(), "open sesame");
    let both = read(
        &["--admin-access-code=x"],
        &[("ADMIN_ACCESS_CODE_FILE", file)],
    )
    .unwrap_err();
    assert!(both.to_string().contains("both set"));
    std::fs::rename(&path, dir.path().join("LINEAR_API_KEY")).unwrap();
    let config = read(
        &[],
        &[("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap())],
    )
    .unwrap();
    assert_eq!(
        config.credentials.linear.unwrap().secret().expose(),
        "open sesame"
    );
}

#[test]
fn effective_values_hide_every_secret() {
    let flags = [
        "--admin-access-code=topsecret",
        "--github-token=ghp_topsecret",
        "--linear-api-key=lin_topsecret",
        "--scm-webhook-secret=webhook_topsecret",
        "--gap-fill-trigger-secret=gap_fill_topsecret",
        "--metrics-token=metrics_topsecret",
        "--secrets-key=topsecretAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    ];
    let config = read(&flags, &[]).unwrap();
    let shown = format!("{:?} {config:?}", config.effective());
    assert!(!shown.contains("topsecret"), "{shown}");
    assert_eq!(config.secrets().len(), 7);
}

#[test]
fn a_ticketing_account_must_be_complete() {
    let complete: [(&[&str], &str); 4] = [
        (
            &[
                "--jira-site-url=https://a.atlassian.net/",
                "--jira-email=a@b.c",
                "--jira-api-token=t",
            ],
            "https://a.atlassian.net",
        ),
        (
            &["--jira-cloud-id=1-2", "--jira-api-token=t"],
            "https://api.atlassian.com/ex/jira/1-2",
        ),
        (
            &[
                "--jira-cloud-id=1-2",
                "--jira-api-token=t",
                "--jira-api-url=http://127.0.0.1:1/x",
            ],
            "http://127.0.0.1:1/x",
        ),
        (
            &[
                "--jira-site-url=https://a.atlassian.net",
                "--jira-email=a@b.c",
                "--jira-api-token=t",
                "--jira-api-url=https://api.atlassian.com/ex/jira/1-2",
            ],
            "https://api.atlassian.com/ex/jira/1-2",
        ),
    ];
    for (flags, api_url) in complete {
        let config = read(flags, &[]).unwrap();
        assert_eq!(config.credentials.jira.as_ref().unwrap().api_url, api_url);
        assert_eq!(config.secrets(), ["t"]);
    }
    let incomplete: [(&[&str], &str); 7] = [
        (
            &["--jira-email=a@b.c"],
            "Jira is configured without JIRA_API_TOKEN",
        ),
        (
            &["--jira-api-token=t"],
            "JIRA_API_TOKEN needs JIRA_SITE_URL and JIRA_EMAIL",
        ),
        (
            &["--jira-api-token=t", "--jira-site-url=https://a.b"],
            "JIRA_API_TOKEN needs",
        ),
        (
            &["--jira-api-token=t", "--jira-email=a@b.c"],
            "JIRA_EMAIL is set and JIRA_SITE_URL is not",
        ),
        (
            &[
                "--jira-api-token=t",
                "--jira-email=a@b.c",
                "--jira-cloud-id=1",
            ],
            "JIRA_EMAIL and JIRA_CLOUD_ID are both set",
        ),
        (
            &["--linear-client-id=x"],
            "LINEAR_CLIENT_ID is set and LINEAR_CLIENT_SECRET is not",
        ),
        (
            &[
                "--linear-client-id=x",
                "--linear-client-secret=s",
                "--linear-api-key=k",
            ],
            "LINEAR_API_KEY and an OAuth client of Linear are both set",
        ),
    ];
    for (flags, problem) in incomplete {
        let error = read(flags, &[]).unwrap_err().to_string();
        assert!(error.contains(problem), "{flags:?}: {error}");
    }
}

#[test]
fn trims_blanks_around_an_address() {
    let flags = [
        "--runner-callback-base-url= https://agents.example.com/ ",
        "--github-api-url= https://github.example.com/api/v3/\t",
        "--github-token=t",
        "--jira-site-url= ",
    ];
    let config = read(&flags, &[]).unwrap();
    let callback = config.callback_base_url.as_deref();
    assert_eq!(callback, Some("https://agents.example.com"));
    let api_url = config.credentials.github.map(|github| github.api_url);
    assert_eq!(
        api_url.as_deref(),
        Some("https://github.example.com/api/v3")
    );
    assert!(config.credentials.jira.is_none());
}

#[test]
fn reads_lowercase_proxy_variables_and_never_shows_their_password() {
    let variables = [
        ("https_proxy", "http://us:proxy-word@proxy.corp:3128"),
        ("http_proxy", "http://elsewhere:1"),
        ("no_proxy", "git.corp, 10.0.0.0/8"),
    ];
    let config = read(&["--http-proxy=proxy.corp:3128"], &variables).unwrap();
    let shown = config.effective();
    let value = |name: &str| {
        let found = shown.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(value("HTTPS_PROXY"), Some("http://proxy.corp:3128"));
    assert_eq!(value("HTTP_PROXY"), Some("http://proxy.corp:3128"));
    assert_eq!(value("NO_PROXY"), Some("git.corp, 10.0.0.0/8"));
    assert!(config.secrets().contains(&"proxy-word"));
    for address in ["ftp://us:proxy-word@proxy.corp", "http://us:proxy-word@:80"] {
        let error = read(&["--https-proxy", address], &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("HTTPS_PROXY must be the http or https address of a proxy"));
        assert!(!error.contains("proxy-word"), "{error}");
    }
}

/// Uses the layout of the package.
#[test]
fn reads_credentials_beside_the_environment_file() {
    let dir = tempfile::tempdir().unwrap();
    let (file, folder) = (dir.path().join("ours.env"), dir.path().join("credentials"));
    std::fs::write(&file, "PORT=9000\n").unwrap();
    let credentials_dir = |file: &Path| {
        let read = EnvFile::read(file).unwrap();
        read.get("CREDENTIALS_DIRECTORY").map(str::to_owned)
    };
    assert_eq!(credentials_dir(&file), None);
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(credentials_dir(&file), Some(folder.display().to_string()));
    std::fs::write(&file, "CREDENTIALS_DIRECTORY=/elsewhere\n").unwrap();
    assert_eq!(credentials_dir(&file).as_deref(), Some("/elsewhere"));
}

#[test]
fn finds_a_credential_by_its_name_with_or_without_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, value: &str| std::fs::write(dir.path().join(name), value).unwrap();
    put("ADMIN_ACCESS_CODE", "by its name\n");
    put(
        "agent-implement_SCM_WEBHOOK_SECRET",
        "found in the folder\n",
    );
    put("agent-implement_LINEAR_API_KEY", "not this one");
    put("agent-implement_HTTPS_PROXY", "http://us:proxy-word@proxy");
    let credentials = [("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap())];
    let config = read(&["--linear-api-key=given"], &credentials).unwrap();
    let found = |secret: Option<&Secret>| secret.map(|secret| secret.expose().to_owned());
    let access_code = found(config.admin_access_code.as_ref());
    assert_eq!(access_code.as_deref(), Some("by its name"));
    let webhook_secret = found(config.credentials.scm_webhook_secret.as_ref());
    assert_eq!(webhook_secret.as_deref(), Some("found in the folder"));
    let linear = config.credentials.linear.as_ref().map(LinearConfig::secret);
    assert_eq!(found(linear).as_deref(), Some("given"));
    assert!(config.secrets().contains(&"proxy-word"));
    assert!(config.runner_token_secret.is_none());
}

#[test]
fn a_cluster_needs_a_namespace_and_a_usable_kubeconfig_file() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, server: &str, user: &str| {
        let path = folder.path().join(name);
        let text = format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {user}}}]}}"
        );
        std::fs::write(&path, text).unwrap();
        format!("--kubeconfig={}", path.display())
    };
    let good = written("good", "https://k:6443", "{token: a-token-of-the-cluster}");
    assert_eq!(
        read(&[&good], &[]).unwrap().kubernetes,
        None,
        "no namespace"
    );
    let config = read(&[&good, "--kubernetes-namespace=runs"], &[]).unwrap();
    assert_eq!(config.kubernetes.as_ref().unwrap().jobs.namespace, "runs");
    assert!(config.secrets().contains(&"a-token-of-the-cluster"));

    let plugin = written("plugin", "https://k", "{exec: {command: aws}}");
    let plain = written("plain", "http://cluster.example.com", "{token: t}");
    let rows = [
        (
            "--kubeconfig=/nowhere/config",
            "KUBECONFIG: /nowhere/config: No such file",
        ),
        (
            plugin.as_str(),
            "exec is not supported: the service starts no program for a token.",
        ),
        (plain.as_str(), "KUBECONFIG must be an https address"),
    ];
    for (flag, problem) in rows {
        let error = read(&[flag, "--kubernetes-namespace=runs"], &[]).unwrap_err();
        assert!(error.to_string().contains(problem), "{flag}: {error}");
    }
    let error = read(&[&good, "--kubernetes-namespace=Runs_1"], &[]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("KUBERNETES_NAMESPACE must be a valid Kubernetes name"),
        "{error}"
    );
    let dotted = [&good, "--kubernetes-namespace=runs.acme"];
    assert!(read(&dotted, &[]).is_err(), "a namespace has no dots");
    let dotted = [
        &good,
        "--kubernetes-namespace=runs",
        "--kubernetes-runtime-class=kata.acme",
    ];
    assert!(read(&dotted, &[]).is_ok());
}
