mod contexts;
mod corpus;
mod encoded;
mod hostile;
mod settings;

use super::*;
use SecretCategory::*;

/// Returns the reason that blocks a file, with an empty allow list.
fn block_reason(path: &str, before: &[u8], after: &[u8]) -> Option<GuardReason> {
    match check_file(path, before, after, &AllowList::default()) {
        GuardVerdict::Block(reason) => Some(reason),
        GuardVerdict::Pass | GuardVerdict::Warn(_) => None,
    }
}

/// Builds a token that does not occur in this file, so that secret scanners do not flag our tests.
fn build_token(prefix: &str, letters: &str, length: usize) -> String {
    let body: String = letters
        .chars()
        .cycle()
        .enumerate()
        .map(|(at, c)| if at % 7 == 3 { '7' } else { c })
        .take(length)
        .collect();
    format!("{prefix}{body}")
}

const WORD: &str = "qZ9kLm3TbX2wVr8NpYc5HdJf";
const HEX: &str = "0f9a3b7c1d5e2468";

#[test]
fn parses_every_format_and_finds_a_keyword() {
    for (_, rule) in rules::all() {
        for notation in rule.formats {
            let format = token_format::TokenFormat::parse(notation);
            let min_len = if rule.kind.is_format() { 2 } else { 0 };
            let is_valid = format.is_some_and(|format| format.keyword().len() >= min_len);
            assert!(is_valid, "{}: {notation}", rule.label);
        }
    }
}

#[test]
fn blocks_sensitive_names_by_category() {
    let rows = [
        (".env", EnvironmentAndConfig),
        (".env2", EnvironmentAndConfig),
        (".env copy", EnvironmentAndConfig),
        ("env.production", EnvironmentAndConfig),
        (".envs/.production/.django", EnvironmentAndConfig),
        ("htpasswd", EnvironmentAndConfig),
        ("id_rsa_old", KeysAndCertificates),
        ("kubeconfig.yaml", Cloud),
        ("app/.ENV.production", EnvironmentAndConfig),
        ("deploy/prod.env", EnvironmentAndConfig),
        ("infra/terraform.tfstate.backup", EnvironmentAndConfig),
        ("config/master.key", EnvironmentAndConfig),
        ("server.key", KeysAndCertificates),
        ("keys/id_rsa", KeysAndCertificates),
        ("deploy_ed25519", KeysAndCertificates),
        ("store.P12", KeysAndCertificates),
        (".aws/credentials", Cloud),
        ("home/x/.kube/config", Cloud),
        ("team_accessKeys.csv", Cloud),
        (".azure/anything.json", Cloud),
        (".pgpass", Database),
        ("home/.my.cnf", Database),
        (".netrc", TokensAndAuth),
        ("x/.docker/config.json", TokensAndAuth),
        ("client_secret_12.json", TokensAndAuth),
        ("trace.har", TokensAndAuth),
    ];
    for (path, category) in rows {
        assert_eq!(
            block_reason(path, b"", b"x"),
            Some(GuardReason::FileName(category)),
            "{path}"
        );
    }
}

#[test]
fn passes_samples_and_public_material() {
    for path in [
        ".env.example",
        ".env.sample",
        "example.env",
        ".env.local.example",
        ".env.template",
        "config/secrets.yml.example",
        "id_rsa.pub",
        "ca.crt",
        "environment.ts",
        "src/env.rs",
        "src/token.rs",
        "kubeconfig.md",
        "docs/aws/config",
        "monkey.keyboard",
        ".aws/task-definition.json",
        "infra/gcloud/main.tf",
    ] {
        assert_eq!(block_reason(path, b"", b"KEY=\n"), None, "{path}");
    }
    let public: [(&str, &[u8]); 4] = [
        (
            "deploy.key",
            b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ me@host\n",
        ),
        (
            ".ssh/known_hosts",
            b"git.acme.io ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ\n",
        ),
        (
            "rsa.key",
            b"\x30\x82\x01\x22\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00\x03",
        ),
        ("rsa.key", b"\x30\x82\x01\x0a\x02\x82\x01\x01\x00\xd7"),
    ];
    for (path, content) in public {
        assert_eq!(block_reason(path, b"", content), None, "{path}");
    }
    let certificate = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    assert_eq!(block_reason("ca.pem", b"", certificate), None);
    let mut both = certificate.to_vec();
    both.extend(private_key().into_bytes());
    assert_eq!(
        block_reason("ca.pem", b"", &both),
        Some(GuardReason::FileName(KeysAndCertificates))
    );
}

fn private_key() -> String {
    let header = ["-----BEGIN RSA ", "PRIVATE KEY-----"].concat();
    format!("{header}\n{}\n", build_token("MII", WORD, 64))
}

#[test]
fn blocks_published_secret_formats() {
    let base32: String = "QZKLMTBXWVRNPYCH".into();
    let rows = [
        (private_key(), KeysAndCertificates),
        (private_key().replace('\n', "\\n"), KeysAndCertificates),
        (format!("key = \"AKIA{base32}\""), Cloud),
        (
            format!("aws_secret_access_key = {}", build_token("", WORD, 40)),
            Cloud,
        ),
        (build_token("AIza", WORD, 35), Cloud),
        (build_token("dop_v1_", HEX, 64).replace('7', "a"), Cloud),
        (
            format!(
                "postgres://app:{}@db.prod-eu.net/x",
                build_token("", WORD, 12)
            ),
            Database,
        ),
        (
            format!(
                "mongodb+srv://u:{}@cluster0.mongodb.net",
                build_token("", WORD, 12)
            ),
            Database,
        ),
        (build_token("ghp_", WORD, 36), TokensAndAuth),
        (build_token("glpat-", WORD, 20), TokensAndAuth),
        (build_token("xoxb-1402938475-", WORD, 30), TokensAndAuth),
        (build_token("sk-ant-api03-", WORD, 90), TokensAndAuth),
        (build_token("sk-proj-", WORD, 48), TokensAndAuth),
        (build_token("sk_live_", WORD, 30), TokensAndAuth),
        (build_token("npm_", WORD, 36), TokensAndAuth),
        (build_token("lin_api_", WORD, 40), TokensAndAuth),
        (
            format!(
                "{}.{}",
                build_token("SG.", WORD, 22),
                build_token("", WORD, 43)
            ),
            TokensAndAuth,
        ),
    ];
    for (text, expected) in rows {
        let text = format!("first line\n{text}\nlast");
        match block_reason("src/settings.ts", b"", text.as_bytes()) {
            Some(GuardReason::Content(category, _)) => assert_eq!(category, expected, "{text}"),
            other => panic!("{other:?} for {text}"),
        }
    }
}

#[test]
fn passes_values_that_only_resemble_secrets() {
    let documented = ["AKIAIOSFODNN7", "EXAMPLE"].concat();
    let header_only = ["if text.contains(\"-----BEGIN ", "PRIVATE KEY-----\") {"].concat();
    for text in [
        documented.as_str(),
        header_only.as_str(),
        "postgres://postgres:postgres@localhost:5432/app",
        "postgres://app:s3cr3tvalue@db:5432/app",
        "DATABASE_URL=postgres://user:${PASSWORD}@db.example.net/x",
        "mysql://user:<password>@db.prod.net",
        "https://user:something@example.com/x",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "sk-ant-api03-your-key-goes-here-your-key-goes-here-your-key",
        "token = read_token()",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ] {
        assert_eq!(
            block_reason("src/a.rs", b"", text.as_bytes()),
            None,
            "{text}"
        );
    }
    assert_eq!(
        block_reason(".npmrc", b"", b"//r/:_authToken=${NPM_TOKEN}\n"),
        None
    );
    assert!(block_reason(".npmrc", b"", b"//r/:_authToken=9sd8f7s6df\n").is_some());
}

#[test]
fn ignores_secrets_in_unchanged_lines() {
    let secret = build_token("ghp_", WORD, 36);
    let before = format!("a\n{secret}\n");
    let after = format!("a\n{secret}\nb\n");
    assert_eq!(
        block_reason("x.txt", before.as_bytes(), after.as_bytes()),
        None
    );
    assert!(block_reason("x.txt", b"a\n", after.as_bytes()).is_some());
}

#[test]
fn rejects_a_link_that_leaves_the_repository() {
    for (path, target, leaves) in [
        ("a/b", "../c", false),
        ("a/b", "../../c", true),
        ("link", "/etc/passwd", true),
        ("link", "dir/../../x", true),
        ("link", "dir/./x", false),
        ("link", ".git/config", true),
        ("a/b/c", "../../d/e", false),
        // If `d` is a link to `.`, each `..` leads one level further up.
        ("link", "d/d/d/../../../etc/passwd", true),
        ("a/b", "./../c/./d", false),
    ] {
        assert_eq!(
            check_symlink(path, target).is_some(),
            leaves,
            "{path} -> {target}"
        );
    }
}

#[test]
fn message_lists_files_and_categories_without_secrets() {
    let secret = build_token("ghp_", WORD, 36);
    let reason = block_reason("src/x.ts", b"", secret.as_bytes()).unwrap();
    let hits = [
        SensitiveFile {
            path: ".env".into(),
            reason: GuardReason::FileName(EnvironmentAndConfig),
        },
        SensitiveFile {
            path: "src/x\n- fake: y.ts".into(),
            reason,
        },
    ];
    assert_eq!(
        guard_message(&hits),
        "🔒 Blocked by security guardrail\n\nPush blocked: 2 sensitive file(s) would be committed:\n\
         - .env: environment and config files (file name)\n\
         - src/x\\u{a}- fake: y.ts: tokens and auth files (GitHub token)"
    );
}

#[test]
fn normalizes_names_like_permissive_file_systems() {
    for path in [
        ".ENV",
        ".e\u{200c}nv",
        "app/.env.",
        "app/.env ",
        "ID_RSA",
        "bac\u{212a}up/.ssh/\u{212a}nown",
        "x/.ssh/config",
        ".AWS/sso/cache/a.json",
        "home/.config/gcloud/legacy/adc.json",
        ".env/production",
    ] {
        let found = block_reason(path, b"", b"x");
        assert!(matches!(found, Some(GuardReason::FileName(_))), "{path:?}");
    }
    assert_eq!(block_reason(".envrc", b"", b"use flake\n"), None);
    assert!(block_reason(".envrc", b"", b"export A=1\n").is_some());
}

#[test]
fn passes_permitted_files_except_private_keys() {
    let globs = ["config/*.env", "**/testdata/**", "caf\u{e9}.pem"].map(String::from);
    let allow = AllowList::compile(&globs).unwrap();
    let token = build_token("ghp_", WORD, 36);
    let rows = [
        ("config/dev.env", "A=1", true),
        ("config/deep/dev.env", "A=1", false),
        ("other.env", "A=1", false),
        ("a/testdata/b/token.txt", token.as_str(), true),
        ("token.txt", token.as_str(), false),
        ("cafe\u{301}.pem", "x", true),
        ("a/testdata/key.pem", "x", true),
    ];
    for (path, content, permitted) in rows {
        let verdict = check_file(path, b"", content.as_bytes(), &allow);
        assert_eq!(
            verdict == GuardVerdict::Pass,
            permitted,
            "{path}: {verdict:?}"
        );
    }
    let key = private_key();
    for content in [key.clone(), format!("{token}\n{key}"), format!("\0{key}")] {
        let verdict = check_file("testdata/key.pem", b"", content.as_bytes(), &allow);
        let expected = GuardReason::Content(KeysAndCertificates, "private key");
        assert_eq!(verdict, GuardVerdict::Block(expected), "{content:?}");
    }
    let error = AllowList::compile(&["a[".to_owned()]).unwrap_err();
    assert!(
        error.to_string().starts_with("invalid glob \"a[\": "),
        "{error}"
    );
    let many = vec!["a".to_owned(); 201];
    assert_eq!(
        AllowList::compile(&many).unwrap_err(),
        AllowListError::TooManyGlobs
    );
}

#[test]
fn passes_a_moved_secret_and_blocks_a_changed_one() {
    let (old, new) = (build_token("ghp_", WORD, 36), build_token("ghp_", HEX, 36));
    let before = format!("a = '{old}'\n");
    let moved = format!("if x {{\n    a = '{old}' # same\n}}\n");
    assert_eq!(
        block_reason("x.py", before.as_bytes(), moved.as_bytes()),
        None
    );
    let both = format!("{moved}b = '{new}'\n");
    assert!(block_reason("x.py", before.as_bytes(), both.as_bytes()).is_some());
    // The header of a key is the same after a rotation.
    let key = private_key();
    let rotated = key.replace("Vr8N\n", "Vr9N\n");
    assert_ne!(rotated, key);
    assert_eq!(
        block_reason("key.txt", key.as_bytes(), key.as_bytes()),
        None
    );
    assert!(block_reason("key.txt", key.as_bytes(), rotated.as_bytes()).is_some());
}

#[test]
fn warns_of_possible_secrets() {
    let random = build_token("", WORD, 32);
    let url = format!(
        "postgres://app:{}@db.prod-eu.net/x",
        build_token("", WORD, 12)
    );
    for (path, text) in [
        ("src/a.ts", format!("const apiKey = \"{random}\";")),
        ("src/a.py", format!("CLIENT_SECRET = '{random}'")),
        ("tests/db.rs", url.clone()),
        ("src/db.test.ts", url),
        ("dev.sqlite3", "SQLite format 3".to_owned()),
    ] {
        let verdict = check_file(path, b"", text.as_bytes(), &AllowList::default());
        assert!(
            matches!(verdict, GuardVerdict::Warn(_)),
            "{path}: {verdict:?}"
        );
    }
    for text in [
        "const token = \"none\";",
        "secret: 'change-me-please-now'",
        "password = \"correct horse battery\"",
    ] {
        let verdict = check_file("src/a.ts", b"", text.as_bytes(), &AllowList::default());
        assert_eq!(verdict, GuardVerdict::Pass, "{text}");
    }
}

#[test]
fn blocks_settings_in_their_files() {
    let secret = build_token("", WORD, 20);
    let rows = [
        (
            ".npmrc",
            format!("//registry.npmjs.org/:_authToken={secret}"),
            TokensAndAuth,
        ),
        (
            ".yarnrc.yml",
            format!("npmAuthToken: {secret}"),
            TokensAndAuth,
        ),
        (
            "settings.xml",
            format!("<password>{secret}</password>"),
            TokensAndAuth,
        ),
        (
            "deploy/config.json",
            format!("{{\"auths\": {{\"r\": {{\"auth\": \"{secret}\"}}}}}}"),
            TokensAndAuth,
        ),
        (
            "auth.json",
            format!("{{\"refresh_token\": \"{secret}\"}}"),
            TokensAndAuth,
        ),
        (
            "notes.txt",
            format!("machine api.shop.net login me password {secret}"),
            TokensAndAuth,
        ),
        (
            "appsettings.json",
            format!("\"Server=db.shop.net;Database=x;User Id=sa;Password={secret};\""),
            Database,
        ),
        (
            "config/database.yml",
            format!("production:\n  password: {secret}\n"),
            Database,
        ),
        (
            "wp-config.php",
            format!("define( 'DB_PASSWORD', '{secret}' );"),
            Database,
        ),
        (
            "shop/settings/production.py",
            format!("SECRET_KEY = '{secret}{secret}{secret}'"),
            EnvironmentAndConfig,
        ),
        (
            "sa.json",
            format!(
                "\"type\": \"service_account\", \"private_key_id\": \"{}\"",
                build_token("", HEX, 40).replace('7', "c")
            ),
            Cloud,
        ),
        (
            "key.ppk",
            "PuTTY-User-Key-File-3: ssh-ed25519\n".to_owned(),
            KeysAndCertificates,
        ),
        (
            "notes.txt",
            "PuTTY-User-Key-File-3: ssh-ed25519\n".to_owned(),
            KeysAndCertificates,
        ),
    ];
    for (path, text, expected) in rows {
        match block_reason(path, b"", text.as_bytes()) {
            Some(GuardReason::Content(category, _) | GuardReason::FileName(category)) => {
                assert_eq!(category, expected, "{path}: {text}");
            }
            other => panic!("{other:?} for {path}: {text}"),
        }
    }
}

#[test]
fn cuts_a_message_of_many_files_with_a_count() {
    let hits: Vec<SensitiveFile> = (0..5000)
        .map(|number| SensitiveFile {
            path: format!("{}/{number}/.env", "deep/".repeat(100)),
            reason: GuardReason::FileName(EnvironmentAndConfig),
        })
        .collect();
    let message = guard_message(&hits);
    assert!(message.contains("Push blocked: 5000 sensitive file(s) would be committed:\n"));
    let listed = message
        .lines()
        .filter(|line| line.ends_with("(file name)"))
        .count();
    assert!(
        listed > 5 && message.len() < 4000,
        "{listed} in {}",
        message.len()
    );
    assert!(
        message.ends_with(&format!("\n- … and {} more", 5000 - listed)),
        "{message}"
    );
    assert!(
        message.contains("/0/.env: "),
        "the end of a path is shown: {message}"
    );
}

#[test]
fn escapes_line_breaks_and_links_in_names() {
    let hit = |path: &str| {
        SensitiveFile {
            path: path.into(),
            reason: GuardReason::ExternalSymlink,
        }
        .to_string()
    };
    let rows = [
        ("a\r\nb", "a\\u{d}\\u{a}b"),
        (
            "a\u{202e}b\u{2028}c\u{e0041}",
            "a\\u{202e}b\\u{2028}c\\u{e0041}",
        ),
        ("app/[id]/page.tsx", "app/[id]/page.tsx"),
        ("[x](y)", "[x]\\(y)"),
        ("\u{1b}[31m", "\\u{1b}[31m"),
    ];
    for (path, escaped) in rows {
        assert_eq!(
            hit(path),
            format!("{escaped}: symbolic link that leaves the repository")
        );
    }
}
