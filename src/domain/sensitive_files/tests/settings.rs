//! Tests of passwords and keys without a vendor, which are identified by name, position or surrounding text.

use data_encoding::BASE64;
use fastrand::Rng;

use super::corpus::generate;
use super::{AllowList, GuardVerdict, check_file};

fn verdict(path: &str, text: &str) -> GuardVerdict {
    check_file(path, b"", text.as_bytes(), &AllowList::default())
}

fn blocks(path: &str, text: &str) -> bool {
    matches!(verdict(path, text), GuardVerdict::Block(_))
}

/// Returns a password like one that a person chooses. It does not occur literally in this file.
fn password() -> String {
    ["Wq7", "mK", "2x", "Zt"].concat()
}

#[test]
fn blocks_values_of_secret_settings_in_every_notation() {
    let mut rng = Rng::with_seed(21);
    let rows = [
        ("notes.txt", "DB_PASSWORD=§"),
        ("notes.txt", "db_password: §"),
        ("run.sh", "export DB_PASSWORD=§"),
        ("run.sh", "DB_PASSWORD=§ ./app --quiet"),
        ("run.sh", "./app --db-password §"),
        ("run.fish", "set -gx DB_PASSWORD §"),
        ("run.bat", "set DB_PASSWORD=§"),
        ("Makefile", "DB_PASSWORD := §"),
        ("Dockerfile", "FROM alpine\nENV DB_PASSWORD §"),
        ("Dockerfile", "FROM alpine\nENV DB_PASSWORD=§"),
        ("compose.yaml", "environment:\n  - DB_PASSWORD=§"),
        ("deploy.yaml", "env:\n  - name: DB_PASSWORD\n    value: §"),
        ("app.properties", "spring.datasource.password=§"),
        ("a.ini", "[db]\npassword = §"),
        ("a.service", "[Service]\nEnvironment=\"DB_PASSWORD=§\""),
        ("a.ts", "const dbPassword = \"§\";"),
        ("a.py", "connect(host='h', password='§')"),
        ("a.php", "define('DB_PASSWORD', '§');"),
        ("a.xml", "<dbPassword>§</dbPassword>"),
        ("a.sql", "CREATE USER app WITH PASSWORD '§';"),
        ("a.sql", "CREATE USER app IDENTIFIED BY '§';"),
        ("redis.conf", "requirepass §"),
    ];
    for (path, place) in rows {
        for value in [
            password(),
            generate(&mut rng, "{alnum:32}"),
            generate(&mut rng, "{hex:40}"),
        ] {
            let text = format!("first\n{}\n", place.replace('§', &value));
            assert!(blocks(path, &text), "{path}: {text}");
        }
    }
    let noise = generate(&mut rng, "{alnum:9}#!x@{alnum:9}^&*{alnum:9}(-%{alnum:9}");
    assert!(
        blocks("settings.py", &format!("SECRET_KEY = '{noise}'\n")),
        "{noise}"
    );
}

#[test]
fn passes_placeholders_and_expressions_in_secret_settings() {
    let mut rng = Rng::with_seed(22);
    let hash = generate(&mut rng, "$6$rounds=656000${alnum:16}${alnum:86}");
    let rows = [
        "password: ${DB_PASSWORD}".to_owned(),
        "password: {{ vault_db_password2 }}".to_owned(),
        "password = os.environ[\"DB_PASSWORD2\"]".to_owned(),
        "private_key: X25519PrivateKey2,".to_owned(),
        "private_key = rfc5958.OneAsymmetricKey2".to_owned(),
        "generate_private_key: x25519_generate_private_key,".to_owned(),
        "password = \"Passw0rd123\"".to_owned(),
        "password = \"MySecretP4ssword!\"".to_owned(),
        "password: Y2hhbmdlbWU=".to_owned(),
        "token_url = https://auth.acme.io/v2".to_owned(),
        "secret: /run/secrets/Db2Prod".to_owned(),
        "Win32_Security_Credentials = [\"Win32_Security\"]".to_owned(),
        format!("TOKEN={}  -", generate(&mut rng, "{hex:64}")),
        format!("password: \"{hash}\""),
        format!("csrf_token = \"{}\"", generate(&mut rng, "{hex:32}")),
        format!("cache-key: {}", generate(&mut rng, "{hex:40}")),
        format!("publicKeyToken=\"{}\"", generate(&mut rng, "{hex:16}")),
    ];
    for text in rows {
        for path in ["src/a.py", "a.txt", "deploy/values.txt"] {
            assert!(!blocks(path, &format!("{text}\n")), "{path}: {text}");
        }
    }
    // In tests and documentation, most secrets are invented.
    let text = format!("secret = \"{}\"\n", generate(&mut rng, "{hex:32}"));
    for path in ["tests/a.yml", "docs/a.yml", "guides/a.md", "src/a.py"] {
        assert!(
            matches!(verdict(path, &text), GuardVerdict::Warn(_)),
            "{path}"
        );
    }
    assert_eq!(
        verdict("tests/a.py", &format!("password = '{}'\n", password())),
        GuardVerdict::Pass
    );
}

#[test]
fn blocks_passwords_in_a_kubernetes_secret() {
    let encoded = BASE64.encode(b"kelp-and-gravel");
    for text in [
        format!("apiVersion: v1\nkind: Secret\ndata:\n  password: {encoded}\n"),
        format!("apiVersion: v1\ndata:\n  password: \"{encoded}\"\nkind: Secret\n"),
        "kind: Secret\nstringData:\n  password: kelp-and-gravel\n".to_owned(),
        format!("{{\"kind\": \"Secret\", \"data\": {{\"pgpass\": \"{encoded}\"}}}}"),
        format!(
            "kind: ConfigMap\n---\nkind: Secret\ndata:\n  api_token: {encoded}\n---\nkind: Pod\n"
        ),
    ] {
        assert!(blocks("deploy/db.yaml", &text), "{text}");
    }
    for text in [
        "kind: ConfigMap\ndata:\n  password: kelp-and-gravel\n".to_owned(),
        format!("kind: Secret\ndata:\n  host: {encoded}\n"),
        "kind: Secret\n---\nkind: ConfigMap\ndata:\n  password: kelp-and-gravel\n".to_owned(),
        "kind: Secret\ndata:\n  password: Y2hhbmdlbWU=\n".to_owned(),
        "kind: Secret\nstringData:\n  password: ${DB_PASSWORD}\n".to_owned(),
        "kind: SecretProviderClass\ndata:\n  password: kelp-and-gravel\n".to_owned(),
    ] {
        assert!(!blocks("deploy/db.yaml", &text), "{text}");
    }
}

#[test]
fn blocks_private_json_web_keys_in_every_notation() {
    let mut rng = Rng::with_seed(23);
    let half = generate(&mut rng, "{url:43}");
    for text in [
        format!("{{\"kty\":\"EC\",\"d\":\"{half}\"}}"),
        format!("{{\"d\": \"{half}\", \"kty\": \"OKP\"}}"),
        format!("{{\"kty\":\"oct\",\"k\":\"{half}\"}}"),
        format!("const jwk = {{kty: 'EC', d: '{half}'}};"),
        format!("{{\"jwk\": \"{{\\\"kty\\\": \\\"EC\\\", \\\"d\\\": \\\"{half}\\\"}}\"}}"),
        format!("kty: EC\nd: {half}\n"),
    ] {
        assert!(blocks("a.txt", &text), "{text}");
    }
    let public = format!("{{\"kty\":\"EC\",\"x\":\"{half}\",\"y\":\"{half}\"}}");
    assert!(!blocks("a.json", &public));
}

#[test]
fn blocks_passwords_in_addresses_and_commands() {
    for place in [
        "dsn = \"app:§@tcp(db.prod.internal:3306)/shop\"",
        "url = jdbc:oracle:thin:app/§@//ora.prod.internal:1521/x",
        "url = jdbc:sqlserver://sql01.corp.local:1433;user=sa;password=§;",
        "host=pg-main user=app password=§ dbname=x",
        "redis-cli -h cache -a § ping",
        "sqlcmd -S sql -U sa -P § -i a.sql",
        "mongosh --host m -u app -p § shop",
        "az login --service-principal -u x -p § --tenant y",
        "ldapsearch -x -w § -b dc=x",
        "helm registry login -u a -p § r.acme.io",
        "kubectl create secret generic db --from-literal=password=§",
        "PGPASSWORD=§ psql -h db",
    ] {
        let text = place.replace('§', &password());
        assert!(blocks("run.sh", &format!("{text}\n")), "{text}");
        let open = place.replace('§', "${PASSWORD}");
        assert!(!blocks("run.sh", &format!("{open}\n")), "{open}");
    }
    let header = BASE64.encode(format!("deploy:{}", password()).as_bytes());
    for text in [
        format!("AUTH_HEADER=\"Basic {header}\""),
        format!("{{\"auths\": {{\"r.acme.io\": {{\"auth\": \"{header}\"}}}}}}"),
    ] {
        assert!(blocks("a.txt", &text), "{text}");
    }
}

#[test]
fn blocks_wallet_keys_and_recovery_phrases() {
    let mut rng = Rng::with_seed(24);
    let key = generate(&mut rng, "0x{hex:64}");
    for text in [
        format!("new ethers.Wallet(\"{key}\", provider)"),
        format!("accounts: [\"{key}\"]"),
        format!("web3.eth.accounts.privateKeyToAccount('{key}')"),
        "mnemonic: \"ripple motion coyote lamp outer inject verb swear pulp kangaroo deputy urge\""
            .to_owned(),
    ] {
        assert!(blocks("hardhat.config.js", &text), "{text}");
    }
    let known = "mnemonic: \"test test test test test test test test test test test junk\"";
    assert!(!blocks("hardhat.config.js", known));
    assert!(!blocks("a.js", &format!("const txHash = \"{key}\";")));
}
