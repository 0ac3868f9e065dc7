//! File names that give themselves away, by the spec's five categories.
//!
//! Compared without case, on the whole path: what stands in `.aws/` is a matter of the folder. A
//! few names are innocent until their content says otherwise (`.npmrc`, `database.yml`); those are
//! [`super::contents`]' to judge.

use super::Category;

/// Judges a path; the content is asked only where the name has an innocent twin.
pub(super) fn judge(path: &str, content: &[u8]) -> Option<Category> {
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    if is_sample(name) {
        return None;
    }
    if is_environment(name) {
        return Some(Category::EnvironmentAndConfig);
    }
    if is_key(name) && !is_public_armor(content) {
        return Some(Category::KeysAndCertificates);
    }
    if is_cloud(&path, name) {
        return Some(Category::Cloud);
    }
    if is_database(name) {
        return Some(Category::Database);
    }
    is_auth(&path, name).then_some(Category::TokensAndAuth)
}

/// A file that shows what such a file looks like. Its content is still judged.
fn is_sample(name: &str) -> bool {
    const MARKS: [&str; 9] = [
        "example", "sample", "template", "tmpl", "dist", "schema", "defaults", "default", "d.ts",
    ];
    let env_like = name.starts_with(".env") || name.ends_with(".env") || name.contains(".env.");
    let marked = MARKS.iter().any(|mark| {
        name.ends_with(&format!(".{mark}"))
            || (env_like
                && (name.starts_with(&format!("{mark}.")) || name.contains(&format!(".{mark}."))))
    });
    marked || name.ends_with(".pub")
}

fn is_environment(name: &str) -> bool {
    const EXACT: [&str; 17] = [
        ".env",
        ".envrc",
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
    ];
    EXACT.contains(&name)
        || name.starts_with(".env.")
        || name.ends_with(".env")
        || name.ends_with(".auto.tfvars")
        || name.ends_with(".tfstate")
        || name.contains(".tfstate.")
}

fn is_key(name: &str) -> bool {
    const ENDINGS: [&str; 19] = [
        ".pem",
        ".key",
        ".p12",
        ".pfx",
        ".pkcs12",
        ".p8",
        ".jks",
        ".keystore",
        ".ppk",
        ".der",
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
    const KINDS: [&str; 4] = ["rsa", "dsa", "ecdsa", "ed25519"];
    ENDINGS.iter().any(|ending| name.ends_with(ending))
        || KINDS
            .iter()
            .any(|kind| name.ends_with(&format!("_{kind}")) && !name.contains('.'))
}

/// Armoured text whose every block is public: certificates, public keys, signatures.
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
    const EXACT: [&str; 15] = [
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
    const PLACES: [&str; 9] = [
        ".aws/credentials",
        ".aws/config",
        ".kube/config",
        ".oci/config",
        ".fly/config.yml",
        ".config/doctl/config.yaml",
        ".config/gcloud/credentials.db",
        ".config/gcloud/access_tokens.db",
        ".bluemix/config.json",
    ];
    EXACT.contains(&name)
        || stands_at(path, &PLACES)
        || has_folder(path, ".azure")
        || name.ends_with("accesskeys.csv")
        || name.ends_with(".publishsettings")
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
    const PLACES: [&str; 9] = [
        ".docker/config.json",
        ".gem/credentials",
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".config/hub",
        "gh/hosts.yml",
        ".codex/auth.json",
        ".composer/auth.json",
        ".ssh/config",
    ];
    EXACT.contains(&name)
        || stands_at(path, &PLACES)
        || (name.starts_with("client_secret") && name.ends_with(".json"))
        || name.ends_with(".har")
}

/// True when the path is one of `places`, or ends in it below some folder.
fn stands_at(path: &str, places: &[&str]) -> bool {
    places.iter().any(|place| {
        path.strip_suffix(place)
            .is_some_and(|head| head.is_empty() || head.ends_with('/'))
    })
}

fn has_folder(path: &str, folder: &str) -> bool {
    path.split('/').rev().skip(1).any(|part| part == folder)
}
