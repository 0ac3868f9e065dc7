use super::*;
use proptest::prelude::*;

#[test]
fn redacts_credentials_by_format() {
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
    let ghs = format!("ghs_123_{jwt}");
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----";
    for secret in [
        jwt,
        ghs.as_str(),
        pem,
        "ghp_0123456789abcdefghij0123456789abcdef",
        "github_pat_11ABCDEFG0123456789_abcdefghij",
        "lin_api_0123456789abcdefghijklmnop",
        "sk-ant-api03-0123456789abcdefghijABCDEFGHIJ",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-1234567890-abcdefghij",
        "https://hooks.slack.com/services/T000/B000/XXXX",
    ] {
        let redacted = Redactor::default().redact(&format!("before {secret} after"));
        assert_eq!(redacted, format!("before {REDACTED} after"), "{secret}");
    }
    assert_eq!(
        Redactor::default().redact("cloning https://x-access-token:s3cr3t@github.com/o/r now"),
        format!("cloning https://{REDACTED}github.com/o/r now")
    );
    for plain in [
        "see https://github.com/o/r/pull/7:12",
        "risk-aware task-driven development of things",
        "user@example.com, a.b.c, ghs_short",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
    ] {
        assert_eq!(Redactor::default().redact(plain), plain);
    }
}

#[test]
fn redacts_known_values_in_every_encoding() {
    let secret = "p@ss w0rd/\"2\"";
    let redactor = Redactor::new([secret, "tiny"]);
    let basic = BASE64.encode(format!("user:{secret}").as_bytes());
    let shifted = BASE64.encode(format!("me:{secret}!").as_bytes());
    for text in [
        secret.to_owned(),
        BASE64.encode(secret.as_bytes()),
        basic,
        shifted,
        "p%40ss%20w0rd%2F%222%22".to_owned(),
        HEXLOWER.encode(secret.as_bytes()),
        serde_json::Value::from(secret).to_string(),
    ] {
        let redacted = redactor.redact(&text);
        assert!(redacted.contains(REDACTED), "{text} -> {redacted}");
    }
    assert_eq!(redactor.redact("a tiny word"), "a tiny word");
}

#[test]
fn clones_share_learned_values_and_a_separate_redactor_does_not() {
    let redactor = Redactor::new(["first-secret"]);
    let (clone, separate) = (redactor.clone(), redactor.with(["second-secret"]));
    clone.learn(["third-secret"]);
    let text = "first-secret second-secret third-secret";
    assert_eq!(
        redactor.redact(text),
        format!("{REDACTED} second-secret {REDACTED}")
    );
    assert_eq!(
        separate.redact(text),
        format!("{REDACTED} {REDACTED} third-secret")
    );
}

#[test]
fn a_replaced_secret_is_known_until_its_successor_is_replaced() {
    let redactor = Redactor::new(["configured"]);
    let text = "configured token-of-one token-of-two token-of-three";
    for (current, expected) in [
        ("token-of-one", "# # token-of-two token-of-three"),
        ("token-of-one", "# # token-of-two token-of-three"),
        ("token-of-two", "# # # token-of-three"),
        ("token-of-three", "# token-of-one # #"),
    ] {
        redactor.clone().learn_current("token", current);
        assert_eq!(redactor.redact(text).replace(REDACTED, "#"), expected);
    }
    let known = redactor.known.read().unwrap();
    assert_eq!(known.replaceable.len(), 1);
}

#[test]
fn redacts_an_excerpt_before_cutting_it() {
    let long = format!("{}\n  ghs_0123456789abcdefghij0123 tail", "x".repeat(480));
    let excerpt = Redactor::default().excerpt(&long);
    assert!(excerpt.contains(REDACTED) && !excerpt.contains("ghs_") && !excerpt.contains('\n'));
    assert!(excerpt.chars().count() <= 501);
}

#[test]
fn redacts_a_private_key_line_by_line() {
    let run = "Zq7LkT9mWx2Vr8NpYc5HdJfBsGhAuEiC3oDy6Xt1";
    let mut lines = Redactor::default().line_redactor();
    let begin = ["-----BEGIN ", "PRIVATE KEY-----"].concat();
    let end = begin.replace("BEGIN", "END");
    let prefixed = format!("key.pem:3:{run}");
    for (line, is_shown) in [
        ("hello", true),
        (begin.as_str(), true),
        (run, false),
        ("a line of another program", true),
        (prefixed.as_str(), false),
        ("Zq7L", false),
        (end.as_str(), true),
        (run, true),
    ] {
        let shown = lines.redact(line);
        assert_eq!(shown == line, is_shown, "{line} -> {shown}");
    }
}

#[test]
fn redacts_each_long_line_of_a_known_value() {
    let secret =
        "-----BEGIN X-----\nfirst-line-of-a-secret\nshort\nother-line-of-a-secret\n-----END X-----";
    let redactor = Redactor::new([secret]);
    for line in ["first-line-of-a-secret", "other-line-of-a-secret"] {
        assert_eq!(
            redactor.redact(&format!("1: {line}.")),
            format!("1: {REDACTED}.")
        );
    }
    assert_eq!(
        redactor.redact("short -----BEGIN X-----"),
        "short -----BEGIN X-----"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn redacts_lines_like_the_whole_text(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "plain ", "\n", " hunter2-secret ", " ghs_0123456789abcdefghij0123 ", "ä", "x://u:p@",
                "-----BEGIN RSA PRIVATE KEY-----\nZq7LkT9mWx2Vr8NpYc5HdJfBsGhAuEiC3oDy6Xt1\n",
                "-----END RSA PRIVATE KEY-----\n",
            ]),
            0..30,
        ),
    ) {
        let text = words.concat();
        let redactor = Redactor::new(["hunter2-secret"]);
        let mut lines = redactor.line_redactor();
        let shown: Vec<String> = text.lines().map(|line| lines.redact(line)).collect();
        let shown = shown.join("\n");
        let whole = redactor.redact(&text);
        for secret in ["hunter2-secret", "ghs_0123", "u:p@", "Zq7LkT9m"] {
            prop_assert!(!whole.contains(secret), "{}", whole);
            prop_assert!(!shown.contains(secret), "{}", shown);
        }
    }
}

#[test]
fn only_values_that_a_text_did_not_contain_are_added() {
    let redactor = Redactor::new(["postgres", "gres-token", "the-model-key"]);
    let before = b"user: postgres";
    for (after, is_added) in [
        ("user: nobody", false),
        ("user: postgres\nowner: postgres", false),
        ("user: postgres\nkey: the-model-key", true),
        ("user: postgres-token", true),
        ("user: cG9zdGdyZXM=", true),
    ] {
        let after = after.as_bytes();
        assert_eq!(redactor.adds_known_secret(before, after), is_added);
        assert!(!redactor.adds_known_secret(after, after));
    }
}
