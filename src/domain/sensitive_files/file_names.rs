//! Classification of sensitive files by name and path.
//!
//! Names are compared like on the most permissive file systems: without case, in composed form, and without
//! invisible characters. The whole path is compared, because the folder decides for files such as those in
//! `.aws/`. Files whose name alone does not indicate a secret (`.npmrc`, `database.yml`) are checked by
//! content only.

use std::borrow::Cow;

use icu_normalizer::ComposingNormalizerBorrowed;

use super::{SecretCategory, magic_numbers};

/// Folders in which every file is sensitive.
const FOLDERS: [(&str, SecretCategory); 5] = [
    (".envs", SecretCategory::EnvironmentAndConfig),
    (".env", SecretCategory::EnvironmentAndConfig),
    (".ssh", SecretCategory::KeysAndCertificates),
    (".gnupg", SecretCategory::KeysAndCertificates),
    (".azure", SecretCategory::Cloud),
];

/// Returns the path in Unicode normalization form C. macOS stores decomposed names.
pub(super) fn nfc_normalized(path: &str) -> Cow<'_, str> {
    ComposingNormalizerBorrowed::new_nfc().normalize(path)
}

/// Returns the path in the form used for comparison. Paths that a file system treats as equal have the same
/// form.
pub(super) fn normalized_path(path: &str) -> String {
    let visible: String = path.chars().filter(|c| !is_ignored(*c)).collect();
    let lower = nfc_normalized(&visible).to_lowercase();
    let parts: Vec<&str> = lower
        .split('/')
        .map(|part| match part.trim_end_matches([' ', '.']) {
            "" => part,
            trimmed => trimmed,
        })
        .collect();
    parts.join("/")
}

/// Returns whether HFS+ ignores the character in names. That file system defines this set, which is smaller than
/// the one of `sanitize::is_visible`.
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// Returns the category of a normalized path. The content is used only for names that public files also have.
pub(super) fn category_of(path: &str, content: &[u8]) -> Option<SecretCategory> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if is_sample(name) {
        return None;
    }
    let name = strip_copy_suffix(name);
    if is_environment(name) || (name == ".envrc" && content.contains(&b'=')) {
        return Some(SecretCategory::EnvironmentAndConfig);
    }
    let is_public = || {
        is_public_armor(content)
            || magic_numbers::is_public_material(content)
            || is_public_line(content)
    };
    if is_key(name) && !is_public() {
        return Some(SecretCategory::KeysAndCertificates);
    }
    if is_cloud(path, name) {
        return Some(SecretCategory::Cloud);
    }
    if is_database(name) {
        return Some(SecretCategory::Database);
    }
    if is_auth(path, name) {
        return Some(SecretCategory::TokensAndAuth);
    }
    let in_folder = |(folder, _): &&(&str, SecretCategory)| has_folder(path, folder);
    if ["known_hosts", "authorized_keys"].contains(&name) && is_public_line(content) {
        return None;
    }
    FOLDERS
        .iter()
        .find(in_folder)
        .map(|(_, category)| *category)
}

/// Returns whether the name is one of a database file. Such files are usually committed by mistake.
pub(super) fn is_database_file(name: &str) -> bool {
    const ENDINGS: [&str; 9] = [
        ".sqlite", ".sqlite3", ".db", ".mdb", ".mdf", ".dump", ".sql.gz", ".bak", ".rdb",
    ];
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Returns whether the path is one of test code or examples, where most secrets are invented.
pub(super) fn is_test_path(path: &str) -> bool {
    const FOLDERS: [&str; 15] = [
        "test",
        "tests",
        "__tests__",
        "spec",
        "specs",
        "testdata",
        "test-data",
        "fixtures",
        "__fixtures__",
        "mocks",
        "__mocks__",
        "e2e",
        "examples",
        "example",
        "benches",
    ];
    let name = path.rsplit('/').next().unwrap_or(path);
    path.split('/').any(|part| FOLDERS.contains(&part))
        || [".test.", ".spec.", "_test.", "_tests.", "tests."]
            .iter()
            .any(|infix| name.contains(infix))
}

/// Returns whether the path is in a documentation folder, where most secrets are invented.
pub(super) fn is_docs_path(path: &str) -> bool {
    const FOLDERS: [&str; 6] = [
        "doc",
        "docs",
        "documentation",
        "docs_src",
        "guides",
        "tutorials",
    ];
    path.split('/')
        .rev()
        .skip(1)
        .any(|part| FOLDERS.contains(&part))
}

/// Returns whether the name is one of a sample, such as `.env.example`. Its content is still checked.
fn is_sample(name: &str) -> bool {
    const MARKS: [&str; 9] = [
        "example", "sample", "template", "tmpl", "dist", "schema", "defaults", "default", "d.ts",
    ];
    let is_env_like = name.starts_with(".env") || name.ends_with(".env") || name.contains(".env.");
    let is_marked = MARKS.iter().any(|mark| {
        name.ends_with(&format!(".{mark}"))
            || (is_env_like
                && (name.starts_with(&format!("{mark}."))
                    || name.contains(&format!(".{mark}."))
                    || [".env-", ".env_"]
                        .iter()
                        .any(|start| name.strip_prefix(start) == Some(mark))))
    });
    is_marked || name.ends_with(".pub")
}

/// Removes suffixes of copies and backups: `.env~`, `server.key.txt`.
fn strip_copy_suffix(name: &str) -> &str {
    const SUFFIXES: [&str; 12] = [
        "~",
        ".txt",
        ".bak",
        ".old",
        ".orig",
        ".backup",
        ".save",
        ".swp",
        ".copy",
        ".tmp",
        ".disabled",
        ".1",
    ];
    let stripped_len = |name: &'_ str| {
        SUFFIXES
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix).map(str::len))
    };
    let mut length = name.len();
    while let Some(shorter) = stripped_len(&name[..length]).filter(|shorter| *shorter > 1) {
        length = shorter;
    }
    // The rest must be more than an extension: `key.txt` is not a key.
    if length < name.len()
        && !name[..length].contains('.')
        && !is_key(&name[..length])
        && !name.starts_with('_')
    {
        return name;
    }
    &name[..length]
}

fn is_environment(name: &str) -> bool {
    const EXACT: [&str; 28] = [
        ".env",
        "htpasswd",
        "env.bak",
        "env.prod",
        "env.production",
        "env.staging",
        "env.local",
        "env.live",
        "secrets.prod.yaml",
        "secrets.prod.yml",
        "secrets.yml",
        "secrets.yaml",
        "secrets.json",
        "secrets.toml",
        "secrets.env",
        "local.settings.json",
        "master.key",
        "secret_token.rb",
        "settings_local.py",
        "local_settings.py",
        "terraform.tfvars",
        "terraform.tfvars.json",
        ".htpasswd",
        "localsettings.php",
        ".dev.vars",
        "secrets.properties",
        "_env",
        "dot_env",
    ];
    EXACT.contains(&name)
        || [".env.", ".env-", ".env_", ".env ", "#.env"].iter().any(|start| name.starts_with(start))
        || name.strip_prefix(".env").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
        || name.ends_with(".htpasswd")
        // `go.env` configures the Go tools.
        || (name.ends_with(".env") && name != "go.env")
        || name.ends_with(".auto.tfvars")
        || name.ends_with(".tfstate")
        || name.contains(".tfstate.")
}

fn is_key(name: &str) -> bool {
    const ENDINGS: [&str; 18] = [
        ".pem",
        ".key",
        ".p12",
        ".pfx",
        ".pkcs12",
        ".p8",
        ".jks",
        ".keystore",
        ".ppk",
        ".asc",
        ".gpg",
        ".kdbx",
        ".psafe3",
        ".ovpn",
        ".agilekeychain",
        ".keychain",
        ".keychain-db",
        ".mobileprovision",
    ];
    const KINDS: [&str; 6] = [
        "_rsa",
        "_dsa",
        "_ecdsa",
        "_ed25519",
        "_ecdsa_sk",
        "_ed25519_sk",
    ];
    const DEFAULTS: [&str; 4] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];
    let is_ssh_key = || {
        !name.contains('.')
            && (KINDS.iter().any(|kind| name.ends_with(kind))
                || DEFAULTS.iter().any(|start| {
                    name.strip_prefix(start)
                        .is_some_and(|rest| rest.starts_with(['_', '-', ' ']))
                }))
    };
    ENDINGS.iter().any(|ending| name.ends_with(ending)) || is_ssh_key()
}

/// Returns whether all lines are public SSH keys, known hosts or comments.
fn is_public_line(content: &[u8]) -> bool {
    let lines = || {
        content
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::trim_ascii)
            .filter(|line| !line.is_empty())
    };
    let is_public = |line: &[u8]| {
        line.starts_with(b"#")
            || line.split(|byte| *byte == b' ').take(3).any(|word| {
                [&b"ssh-"[..], b"ecdsa-sha2-", b"sk-"]
                    .iter()
                    .any(|kind| word.starts_with(kind))
            })
    };
    lines().next().is_some() && lines().all(is_public)
}

/// Returns whether the content has PEM blocks and all of them are public: certificates, public keys,
/// signatures.
fn is_public_armor(content: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content);
    let mut blocks = text
        .split("-----BEGIN ")
        .skip(1)
        .filter_map(|rest| rest.split("-----").next())
        .peekable();
    blocks.peek().is_some()
        && blocks.all(|label| {
            matches!(
                label,
                "CERTIFICATE"
                    | "TRUSTED CERTIFICATE"
                    | "CERTIFICATE REQUEST"
                    | "NEW CERTIFICATE REQUEST"
                    | "X509 CRL"
                    | "PKCS7"
                    | "DH PARAMETERS"
                    | "EC PARAMETERS"
            ) || label.ends_with("PUBLIC KEY")
                || label == "PGP PUBLIC KEY BLOCK"
                || label == "PGP SIGNATURE"
                || label == "PGP MESSAGE"
        })
}

fn is_cloud(path: &str, name: &str) -> bool {
    const EXACT: [&str; 17] = [
        "kubeconfig.yaml",
        "kubeconfig.yml",
        ".s3cfg",
        ".boto",
        "credentials.csv",
        "rootkey.csv",
        "application_default_credentials.json",
        "service-account.json",
        "service_account.json",
        "serviceaccountkey.json",
        "azureprofile.json",
        "accesstokens.json",
        "kubeconfig",
        ".terraformrc",
        "terraform.rc",
        "credentials.tfrc.json",
        "gcloud.json",
    ];
    const PATHS: [&str; 7] = [
        ".aws/credentials",
        ".aws/config",
        ".kube/config",
        ".oci/config",
        ".fly/config.yml",
        ".config/doctl/config.yaml",
        ".bluemix/config.json",
    ];
    const CACHES: [&str; 3] = [".config/gcloud/", ".aws/sso/cache/", ".aws/cli/cache/"];
    EXACT.contains(&name)
        || ends_with_path(path, &PATHS)
        || CACHES.iter().any(|cache| path.contains(cache))
        || name.ends_with("accesskeys.csv")
        || name.ends_with(".publishsettings")
        || name.ends_with(".cscfg")
        || name.ends_with(".kubeconfig")
}

fn is_database(name: &str) -> bool {
    const EXACT: [&str; 10] = [
        ".pgpass",
        "pgpass.conf",
        ".my.cnf",
        ".mylogin.cnf",
        "robomongo.json",
        ".dbeaver-data-sources.xml",
        "credentials-config.json",
        ".mysql_history",
        ".psql_history",
        ".rediscli_history",
    ];
    EXACT.contains(&name)
}

fn is_auth(path: &str, name: &str) -> bool {
    const EXACT: [&str; 17] = [
        ".netrc",
        "_netrc",
        ".git-credentials",
        ".dockercfg",
        ".dockerconfigjson",
        ".vault-token",
        ".bash_history",
        ".zsh_history",
        ".sh_history",
        ".node_repl_history",
        ".python_history",
        ".irb_history",
        "oauth_creds.json",
        ".credentials.json",
        "credentials.json",
        ".pypirc",
        "cookies.txt",
    ];
    const PATHS: [&str; 8] = [
        ".docker/config.json",
        ".gem/credentials",
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".config/hub",
        "gh/hosts.yml",
        ".codex/auth.json",
        ".composer/auth.json",
    ];
    EXACT.contains(&name)
        || ends_with_path(path, &PATHS)
        || (name.starts_with("client_secret") && name.ends_with(".json"))
        || name.ends_with(".har")
}

/// Returns whether the path equals or ends with one of `suffixes`, at a folder boundary.
fn ends_with_path(path: &str, suffixes: &[&str]) -> bool {
    suffixes.iter().any(|suffix| {
        path.strip_suffix(suffix)
            .is_some_and(|head| head.is_empty() || head.ends_with('/'))
    })
}

fn has_folder(path: &str, folder: &str) -> bool {
    path.split('/').rev().skip(1).any(|part| part == folder)
}
