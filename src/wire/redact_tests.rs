use super::*;
use proptest::prelude::*;

#[test]
fn credentials_are_known_by_their_shape() {
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
        assert_eq!(redacted, format!("before {MARK} after"), "{secret}");
    }
    assert_eq!(
        Redactor::default().redact("cloning https://x-access-token:s3cr3t@github.com/o/r now"),
        format!("cloning https://{MARK}github.com/o/r now")
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
fn known_values_are_found_in_every_encoding() {
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
        assert!(redacted.contains(MARK), "{text} -> {redacted}");
    }
    assert_eq!(redactor.redact("a tiny word"), "a tiny word");
}

#[test]
fn an_excerpt_is_one_line_and_redacted_before_it_is_cut() {
    let long = format!("{}\n  ghs_0123456789abcdefghij0123 tail", "x".repeat(480));
    let excerpt = Redactor::default().excerpt(&long);
    assert!(excerpt.contains(MARK) && !excerpt.contains("ghs_") && !excerpt.contains('\n'));
    assert!(excerpt.chars().count() <= 501);
}

#[test]
fn an_unfinished_key_never_leaves_a_stream() {
    let mut stream = Redactor::default().stream();
    let mut shown = stream.push("hello\n-----BEGIN PRIVATE");
    shown += &stream.push(" KEY-----\nMIIEsecret\n");
    assert_eq!(shown, "hello\n");
    assert_eq!(stream.finish(), MARK);
}

#[test]
fn a_long_line_is_let_through_in_the_end() {
    let mut stream = Redactor::new(["multi\nline-secret"]).stream();
    let mut shown = String::new();
    for _ in 0..40 {
        shown += &stream.push(&"y".repeat(10_000));
    }
    assert!(shown.len() > 250_000, "{}", shown.len());
    shown += &stream.finish();
    assert_eq!(shown.len(), 400_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_shows_what_the_whole_text_would(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "plain ", "\n", "hunter2-secret", "two\nlines", "ghs_0123456789abcdefghij0123 ",
                "ä", "://u:p@", "-----BEGIN RSA PRIVATE KEY-----\nxx\n-----END RSA PRIVATE KEY-----\n",
            ]),
            0..30,
        ),
        cuts in prop::collection::vec(1usize..40, 1..60),
    ) {
        let text = words.concat();
        let redactor = Redactor::new(["hunter2-secret", "two\nlines"]);
        let mut stream = redactor.stream();
        let mut shown = String::new();
        let mut rest = text.as_str();
        for cut in cuts {
            let cut = rest.floor_char_boundary(cut);
            shown += &stream.push(&rest[..cut]);
            rest = &rest[cut..];
        }
        shown += &stream.push(rest);
        shown += &stream.finish();
        prop_assert_eq!(shown, redactor.redact(&text));
    }
}
