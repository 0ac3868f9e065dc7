//! Tests of secrets in typical contexts: unquoted settings, connection strings, headers, commands, other
//! keys. All values are random and follow the formats that vendors document.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use fastrand::Rng;

use super::corpus::{generate, generate_lines};
use super::{AllowList, GuardReason, GuardVerdict, check_file};

fn verdict(path: &str, text: &str) -> GuardVerdict {
    check_file(path, b"", text.as_bytes(), &AllowList::default())
}

fn rule_label(verdict: GuardVerdict) -> Option<&'static str> {
    match verdict {
        GuardVerdict::Block(GuardReason::Content(_, label)) => Some(label),
        _ => None,
    }
}

/// Generates each row twenty times and passes it to `check`; `§` is replaced with a random password.
fn for_each_sample(rows: &[(&str, &str)], check: impl Fn(&str, &str, &str)) {
    let mut rng = Rng::with_seed(1022);
    for (path, row) in rows {
        for _ in 0..20 {
            let text = generate_lines(&mut rng, &row.replace('§', "{alnum:20}"));
            check(path, row, &text);
        }
    }
}

#[test]
#[rustfmt::skip]
fn blocks_secrets_in_typical_contexts() {
    let rows = [
        // Unquoted values near a vendor's name.
        (".github/deploy.sh", "export STRIPE_SECRET={alnum:32}\n"),
        ("config/app.properties", "sendgrid.api.key=§\n"),
        ("values.yaml", "datadog:\n  apiKey: {hex:32}\n"),
        ("Dockerfile", "ENV OPENAI_API_KEY {alnum:40}\n"),
        ("docker-compose.yml", "      - MAILGUN_API_KEY={hex:32}\n"),
        // Connection strings.
        ("src/db.go", "dsn := \"host=db.prod.internal user=app password=§ dbname=shop\"\n"),
        ("src/Db.java", "String u = \"jdbc:postgresql://db.shop-prod.net:5432/app?user=app&password=§\";\n"),
        ("src/Db.cs", "var c = \"Server=tcp:shop.database.windows.net,1433;User ID=app;Password=§;\";\n"),
        ("src/db.py", "url = 'postgresql+asyncpg://app:§@db.prod.internal:5432/app'\n"),
        ("notes.md", "amqp://app:§@mq.prod.internal/vhost\n"),
        // Commands.
        ("deploy.sh", "curl -u deploy:§ https://artifacts.shop-prod.net/x\n"),
        ("deploy.sh", "curl -X POST \\\n  --user 'deploy:§' https://artifacts.shop-prod.net/x\n"),
        ("deploy.sh", "sshpass -p '§' ssh app@10.0.0.7\n"),
        ("netrc.txt", "machine api.shop-prod.net\n  login app\n  password §\n"),
        // Frameworks.
        ("config/secrets.rb", "secret_key_base: {hex:128}\n"),
        ("deploy/app.conf", "APP_KEY=base64:{b64:43}=\n"),
        // Other keys.
        ("wg0.conf", "[Interface]\nPrivateKey = {b64:43}=\n"),
        ("deploy.ts", "const PRIVATE_KEY = \"0x{hex:64}\";\n"),
        ("jwk.json", "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"{url:43}\",\"y\":\"{url:43}\",\"d\":\"{alnum:43}\"}"),
    ];
    for_each_sample(&rows, |path, row, text| {
        let found = verdict(path, text);
        assert!(matches!(found, GuardVerdict::Block(_)), "{row}: {found:?} for {text}");
    });
}

#[test]
fn blocks_credentials_in_headers() {
    let mut rng = Rng::with_seed(3);
    let pair = generate(&mut rng, "deploy:{alnum:24}");
    let basic = format!("Authorization: Basic {}\n", BASE64.encode(pair.as_bytes()));
    assert_eq!(
        rule_label(verdict("a.http", &basic)),
        Some("Authorization header")
    );
    let bearer = generate(&mut rng, "Authorization: Bearer {alnum:40}\n");
    assert_eq!(
        rule_label(verdict("a.http", &bearer)),
        Some("Authorization header")
    );
    // The example from RFC 7617, and plain words.
    for text in [
        "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\n",
        "Authorization: Basic realm\n",
        "Authorization: Bearer ${TOKEN}\n",
        "the basic principles of authorization\n",
    ] {
        assert_eq!(verdict("a.http", text), GuardVerdict::Pass, "{text}");
    }
}

#[test]
fn blocks_a_json_web_token_except_in_tests() {
    let mut rng = Rng::with_seed(4);
    let claims = BASE64URL_NOPAD.encode(b"{\"iss\":\"shop\",\"ref\":\"kqzvxw\"}");
    let token = generate(
        &mut rng,
        &format!("eyJhbGciOiJIUzI1NiJ9.{claims}.{{alnum:43}}"),
    );
    let found = verdict("a.txt", &token);
    assert!(matches!(found, GuardVerdict::Block(_)), "{found:?}");
    let found = verdict("tests/a.txt", &token);
    assert!(matches!(found, GuardVerdict::Warn(_)), "{found:?}");
}

#[test]
fn warns_of_a_key_in_web_client_configuration() {
    let mut rng = Rng::with_seed(5);
    let key = generate(&mut rng, "AIza{alnum:35}");
    let web = format!(
        "const firebaseConfig = {{ apiKey: \"{key}\", authDomain: \"shop.firebaseapp.com\" }};"
    );
    let found = verdict("src/firebase.ts", &web);
    assert!(matches!(found, GuardVerdict::Warn(_)), "{found:?}");
    let server = format!("API = \"{key}\"\n");
    assert!(matches!(
        verdict("src/maps.py", &server),
        GuardVerdict::Block(_)
    ));
}

#[test]
#[rustfmt::skip]
fn passes_placeholders_and_public_values() {
    let rows = [
        ("deploy.sh", "curl -u $USER:$PASS https://x.net\n"), ("deploy.sh", "curl -u user:password https://x.net\n"),
        ("deploy.sh", "sshpass -p \"$PASSWORD\" ssh x\n"), ("src/db.go", "dsn := \"host=localhost user=app password=postgres dbname=shop\"\n"),
        ("src/Db.java", "\"jdbc:postgresql://localhost:5432/app?user=app&password=secret\"\n"),
        ("src/a.rs", "let stripe_key = std::env::var(\"STRIPE_SECRET_KEY\")?;\n"), ("src/a.py", "openai.api_key = os.environ[\"OPENAI_API_KEY\"]\n"),
        ("src/a.ts", "const token = await githubClient.getInstallationToken(installationId1, repositoryId2);\n"),
        ("a.yml", "  DATADOG_API_KEY: ${{ secrets.DATADOG_API_KEY }}\n"), ("Dockerfile", "ENV OPENAI_API_KEY=\n"),
        ("app.properties", "spring.datasource.password=${DB_PASSWORD}\n"), ("values.yaml", "stripe:\n  secretName: stripe-secret-v2-prod\n"),
        ("jwk.json", "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"{url:43}\",\"y\":\"{url:43}\"}"),
        ("wg0.conf", "[Peer]\nPublicKey = {b64:43}=\n"), ("src/a.ts", "const publishableKey = 'pk_live_{alnum:24}';\n"),
        ("package-lock.json", "\"node_modules/stripe\": {\"integrity\": \"sha512-{b64:86}==\"}\n"), ("go.sum", "github.com/stripe/stripe-go v1.0.0 h1:{b64:43}=\n"),
        ("a.lock", "[[package]]\nname = \"auth0\"\nchecksum = \"{hex:64}\"\n"), ("a.md", "see https://app.datadoghq.com/dashboard/{lower:3}-{lower:3}-{lower:3}\n"),
    ];
    let mut rng = Rng::with_seed(6);
    for (path, row) in rows {
        for _ in 0..20 {
            let text = generate_lines(&mut rng, row);
            assert_eq!(verdict(path, &text), GuardVerdict::Pass, "{row}: {text}");
        }
    }
}

#[test]
fn blocks_names_of_copies_and_variants() {
    for path in [
        ".env~",
        ".env-prod",
        ".env_prod",
        "_env",
        "prod.env.txt",
        "users.htpasswd",
        "server.key.txt",
        ".env.bak",
        "id_rsa.old",
    ] {
        let found = verdict(path, "x");
        assert!(
            matches!(found, GuardVerdict::Block(GuardReason::FileName(_))),
            "{path}: {found:?}"
        );
    }
    for path in [
        "go.env",
        ".env-example",
        ".env_sample",
        "key.txt",
        "env.txt",
        "_env.rs",
        "notes.txt",
        "environment~",
    ] {
        assert_eq!(verdict(path, "x"), GuardVerdict::Pass, "{path}");
    }
}
