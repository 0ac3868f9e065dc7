//! Rules without a vendor: passwords, JSON Web Tokens, headers, command arguments.

use super::{Rule, RuleKind, format, rule, setting};
use crate::sensitive_files::SecretCategory::{EnvironmentAndConfig, TokensAndAuth};

/// Rules of this module in order of precedence.
#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    rule(RuleKind::Jwt, TokensAndAuth, "JSON Web Token", &[], &["eyJ{url:10-1000}.eyJ{url:10-3000}.{url:16-1400}", "eyJ{url:10-1000}..{url:10-200}.{url:16-3000}.{url:10-200}"]),
    rule(RuleKind::WebUrl, TokensAndAuth, "URL with password", &["http", "https", "ftp", "ftps", "sftp", "smtp", "smtps", "imap", "imaps", "pop3", "pop3s", "ssh", "git", "ws", "wss", "socks5", "svn", "rsync", "rtsp", "webdav", "webdavs", "smb", "sip"], &[]),
    setting(TokensAndAuth, "package registry credential", &["_authtoken", "_auth", "_password"], &[".npmrc"]),
    setting(TokensAndAuth, "package registry credential", &["npmauthtoken", "npmauthident"], &[".yarnrc.yml"]),
    setting(TokensAndAuth, "server password", &["<password", "cleartextpassword"], &["settings.xml", "nuget.config"]),
    setting(TokensAndAuth, "registry credential", &["\"auth\""], &["config.json", "auth.json"]),
    setting(TokensAndAuth, "stored login", &["access_token", "refresh_token", "id_token", "\"password\"", "bearer\""], &["auth.json", "token.json", "tokens.json", "hosts.json"]),
    setting(EnvironmentAndConfig, "Django secret key", &["secret_key"], &["production.py", "prod.py"]),
    rule(RuleKind::Setting, EnvironmentAndConfig, "Rails secret key", &["secret_key_base"], &["{hex:64-256}"]),
    format(EnvironmentAndConfig, "Laravel application key", &["base64:{b64:43}="]),
    rule(RuleKind::CommandArgument, TokensAndAuth, "netrc password", &["machine "], &[]),
    rule(RuleKind::CommandArgument, TokensAndAuth, "password in a command", &["curl ", "wget ", "sshpass ", "mysql ", "mysqldump ", "docker login", "podman login", "registry login", "az login", "mongo ", "mongosh ", "mongodump ", "mongorestore ", "redis-cli ", "sqlcmd ", "ldapsearch ", "ldapadd ", "ldapmodify ", "http "], &[]),
    rule(RuleKind::AuthorizationHeader, TokensAndAuth, "Authorization header", &["basic ", "bearer ", "token ", "apikey ", "api-key ", "\"auth\": \"", "\"auth\":\""], &[]),
    rule(RuleKind::KubernetesSecret, TokensAndAuth, "Kubernetes Secret", &["kind: secret", "kind: \"secret", "\"kind\": \"secret", "\"kind\":\"secret"], &[]),
    rule(RuleKind::Generic, TokensAndAuth, "generic secret", &[], &[]),
    rule(RuleKind::Random, TokensAndAuth, "possible secret", &[], &[]),
];
