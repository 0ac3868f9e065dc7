use super::*;
use Category::*;

/// A token that is not in this file as it stands, so that no scanner stumbles over our own tests.
fn made(prefix: &str, letters: &str, length: usize) -> String {
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
fn names_are_judged_by_the_five_categories() {
    let rows = [
        (".env", EnvironmentAndConfig),
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
            judge(path, b"", b"x"),
            Some(Reason::Name(category)),
            "{path}"
        );
    }
}

#[test]
fn samples_and_public_material_pass() {
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
    ] {
        assert_eq!(judge(path, b"", b"KEY=\n"), None, "{path}");
    }
    let certificate = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    assert_eq!(judge("ca.pem", b"", certificate), None);
    let mut both = certificate.to_vec();
    both.extend(private_key().into_bytes());
    assert_eq!(
        judge("ca.pem", b"", &both),
        Some(Reason::Name(KeysAndCertificates))
    );
}

fn private_key() -> String {
    let header = ["-----BEGIN RSA ", "PRIVATE KEY-----"].concat();
    format!("{header}\n{}\n", made("MII", WORD, 64))
}

#[test]
fn contents_are_judged_by_published_formats() {
    let base32: String = "QZKLMTBXWVRNPYCH".into();
    let rows = [
        (private_key(), KeysAndCertificates),
        (private_key().replace('\n', "\\n"), KeysAndCertificates),
        (format!("key = \"AKIA{base32}\""), Cloud),
        (
            format!("aws_secret_access_key = {}", made("", WORD, 40)),
            Cloud,
        ),
        (made("AIza", WORD, 35), Cloud),
        (made("dop_v1_", HEX, 64).replace('7', "a"), Cloud),
        (
            format!("postgres://app:{}@db.prod-eu.net/x", made("", WORD, 12)),
            Database,
        ),
        (
            format!(
                "mongodb+srv://u:{}@cluster0.mongodb.net",
                made("", WORD, 12)
            ),
            Database,
        ),
        (made("ghp_", WORD, 36), TokensAndAuth),
        (made("glpat-", WORD, 20), TokensAndAuth),
        (made("xoxb-1234567890-", WORD, 30), TokensAndAuth),
        (made("sk-ant-api03-", WORD, 90), TokensAndAuth),
        (made("sk-proj-", WORD, 48), TokensAndAuth),
        (made("sk_live_", WORD, 30), TokensAndAuth),
        (made("npm_", WORD, 36), TokensAndAuth),
        (made("lin_api_", WORD, 40), TokensAndAuth),
        (
            format!("{}.{}", made("SG.", WORD, 22), made("", WORD, 43)),
            TokensAndAuth,
        ),
    ];
    for (text, expected) in rows {
        let text = format!("first line\n{text}\nlast");
        match judge("src/settings.ts", b"", text.as_bytes()) {
            Some(Reason::Content(category, _)) => assert_eq!(category, expected, "{text}"),
            other => panic!("{other:?} for {text}"),
        }
    }
}

#[test]
fn what_only_looks_like_a_secret_passes() {
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
        assert_eq!(judge("src/a.rs", b"", text.as_bytes()), None, "{text}");
    }
    assert_eq!(
        judge(".npmrc", b"", b"//r/:_authToken=${NPM_TOKEN}\n"),
        None
    );
    assert!(judge(".npmrc", b"", b"//r/:_authToken=9sd8f7s6df\n").is_some());
}

#[test]
fn only_added_lines_count() {
    let secret = made("ghp_", WORD, 36);
    let before = format!("a\n{secret}\n");
    let after = format!("a\n{secret}\nb\n");
    assert_eq!(judge("x.txt", before.as_bytes(), after.as_bytes()), None);
    assert!(judge("x.txt", b"a\n", after.as_bytes()).is_some());
}

#[test]
fn a_link_may_not_leave_the_repository() {
    for (path, target, leaves) in [
        ("a/b", "../c", false),
        ("a/b", "../../c", true),
        ("link", "/etc/passwd", true),
        ("link", "dir/../../x", true),
        ("link", "dir/./x", false),
        ("link", ".git/config", true),
        ("a/b/c", "../../d/e", false),
    ] {
        assert_eq!(
            judge_link(path, target).is_some(),
            leaves,
            "{path} -> {target}"
        );
    }
}

#[test]
fn the_message_names_files_and_categories_and_no_secret() {
    let secret = made("ghp_", WORD, 36);
    let reason = judge("src/x.ts", b"", secret.as_bytes()).unwrap();
    let hits = [
        Hit {
            path: ".env".into(),
            reason: Reason::Name(EnvironmentAndConfig),
        },
        Hit {
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
