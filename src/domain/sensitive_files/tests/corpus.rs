//! Tests with generated secrets of every published format in typical contexts, and with values that only
//! resemble secrets. All values are generated from fixed seeds, so that this file contains no token.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use fastrand::Rng;

use super::super::rules::{self, Rule, RuleKind};
use super::{AllowList, GuardReason, GuardVerdict, check_file};

/// Number of secrets generated for each format and context.
const SAMPLES: usize = 8;

/// Published format: label, typical setting name, and notation. `{hex:32}` is 32 characters of a class.
struct SampleFormat(&'static str, &'static str, &'static str);

/// Formats that are unique by themselves.
#[rustfmt::skip]
const UNIQUE: &[SampleFormat] = &[
    SampleFormat("age secret key", "AGE_KEY", "AGE-SECRET-KEY-1{bech:58}"),
    SampleFormat("AWS access key", "AWS_ACCESS_KEY_ID", "AKIA{b32:16}"),
    SampleFormat("AWS access key", "AWS_ACCESS_KEY_ID", "ASIA{b32:16}"),
    SampleFormat("Amazon Bedrock key", "BEDROCK_KEY", "ABSK{alnum:110}"),
    SampleFormat("Google API key", "GOOGLE_KEY", "AIza{url:35}"),
    SampleFormat("Google OAuth client secret", "GOOGLE_CLIENT", "GOCSPX-{alnum:28}"),
    SampleFormat("Google OAuth access token", "GOOGLE_ACCESS", "ya29.{alnum:120}"),
    SampleFormat("Azure storage account key", "AZURE_STORAGE", "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={alnum:86}==;EndpointSuffix=core.windows.net"),
    SampleFormat("Azure shared access key", "SERVICE_BUS", "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={alnum:43}="),
    SampleFormat("Azure shared access signature", "SAS_URL", "https://shop.blob.core.windows.net/c?sv=2024-11-04&ss=b&srt=co&sp=rwd&se=2027-01-01&sig={alnum:43}%3D"),
    SampleFormat("Azure client secret", "AZURE_CLIENT_SECRET", "{alnum:3}8Q~{alnum:34}"),
    SampleFormat("Azure DevOps token", "AZURE_PAT", "{alnum:76}AZDO{alnum:4}"),
    SampleFormat("DigitalOcean token", "DO_TOKEN", "dop_v1_{hex:64}"),
    SampleFormat("Fly.io token", "FLY_API_TOKEN", "FlyV1 fm2_{b64:120}"),
    SampleFormat("Fly.io token", "FLY_API_TOKEN", "fo1_{alnum:43}"),
    SampleFormat("Heroku token", "HEROKU_TOKEN", "HRKU-AA{alnum:58}"),
    SampleFormat("Alibaba Cloud access key", "ALIBABA_KEY", "LTAI5t{alnum:18}"),
    SampleFormat("Terraform Cloud token", "TF_TOKEN", "{alnum:14}.atlasv1.{alnum:67}"),
    SampleFormat("Vault token", "VAULT_TOKEN", "hvs.{alnum:90}"),
    SampleFormat("Pulumi token", "PULUMI_TOKEN", "pul-{hex:40}"),
    SampleFormat("Databricks token", "DATABRICKS_TOKEN", "dapi{hex:32}"),
    SampleFormat("Cloudflare origin key", "CF_ORIGIN", "v1.0-{hex:24}-{hex:146}"),
    SampleFormat("Cloudflare token", "CF", "cfut_{alnum:48}"),
    SampleFormat("Vercel token", "VERCEL", "vcp_{alnum:56}"),
    SampleFormat("Netlify token", "NETLIFY_TOKEN", "nfp_{alnum:36}"),
    SampleFormat("Tailscale key", "TS_KEY", "tskey-auth-{alnum:12}CNTRL-{alnum:32}"),
    SampleFormat("PlanetScale credential", "PSCALE", "pscale_tkn_{alnum:43}"),
    SampleFormat("PlanetScale credential", "PSCALE", "pscale_pw_{alnum:43}"),
    SampleFormat("Supabase key", "SUPABASE", "sbp_{hex:40}"),
    SampleFormat("Supabase key", "SUPABASE", "sb_secret_{alnum:31}"),
    SampleFormat("GitHub token", "GITHUB_TOKEN", "ghp_{alnum:36}"),
    SampleFormat("GitHub token", "GITHUB_TOKEN", "ghs_{alnum:36}"),
    SampleFormat("GitHub token", "GITHUB_TOKEN", "gho_{alnum:36}"),
    SampleFormat("GitHub token", "GITHUB_TOKEN", "ghu_{alnum:36}"),
    SampleFormat("GitHub token", "GITHUB_TOKEN", "ghr_{alnum:76}"),
    SampleFormat("GitHub token", "GITHUB_TOKEN", "github_pat_{alnum:22}_{alnum:59}"),
    SampleFormat("GitLab token", "GITLAB_TOKEN", "glpat-{alnum:20}"),
    SampleFormat("GitLab token", "GITLAB_TOKEN", "glrt-{alnum:20}"),
    SampleFormat("Bitbucket or Atlassian token", "JIRA_TOKEN", "ATATT3xFfGF0{alnum:180}"),
    SampleFormat("Bitbucket or Atlassian token", "BITBUCKET", "ATBB{alnum:32}"),
    SampleFormat("Slack token", "SLACK", "xoxb-{dig:12}-{dig:13}-{alnum:24}"),
    SampleFormat("Slack token", "SLACK", "xoxp-{dig:12}-{dig:12}-{dig:12}-{hex:32}"),
    SampleFormat("Slack app token", "SLACK_APP", "xapp-1-A{upper:10}-{dig:13}-{hex:64}"),
    SampleFormat("Slack webhook", "SLACK_URL", "https://hooks.slack.com/services/T{upper:10}/B{upper:10}/{alnum:24}"),
    SampleFormat("Teams webhook", "TEAMS_URL", "https://shop.webhook.office.com/webhookb2/{uuid}@{uuid}/IncomingWebhook/{hex:32}/{uuid}"),
    SampleFormat("Discord webhook", "DISCORD_URL", "https://discord.com/api/webhooks/{dig:18}/{alnum:68}"),
    SampleFormat("Telegram bot token", "TELEGRAM", "{dig:10}:AA{alnum:33}"),
    SampleFormat("Stripe live key", "STRIPE", "sk_live_{alnum:24}"),
    SampleFormat("Stripe live key", "STRIPE", "rk_live_{alnum:99}"),
    SampleFormat("webhook signing secret", "SIGNING", "whsec_{alnum:32}"),
    SampleFormat("Anthropic key", "ANTHROPIC_API_KEY", "sk-ant-api03-{alnum:93}AA"),
    SampleFormat("OpenAI key", "OPENAI_API_KEY", "sk-proj-{alnum:74}T3BlbkFJ{alnum:74}"),
    SampleFormat("OpenAI key", "OPENAI_API_KEY", "sk-{alnum:20}T3BlbkFJ{alnum:20}"),
    SampleFormat("OpenRouter key", "OPENROUTER", "sk-or-v1-{hex:64}"),
    SampleFormat("Groq key", "GROQ", "gsk_{alnum:52}"),
    SampleFormat("xAI key", "XAI", "xai-{alnum:80}"),
    SampleFormat("Perplexity key", "PPLX", "pplx-{alnum:48}"),
    SampleFormat("Replicate token", "REPLICATE", "r8_{alnum:37}"),
    SampleFormat("Hugging Face token", "HF_TOKEN", "hf_{alnum:34}"),
    SampleFormat("npm token", "NPM_TOKEN", "npm_{alnum:36}"),
    SampleFormat("PyPI token", "PYPI", "pypi-AgEIcHlwaS5vcmc{alnum:120}"),
    SampleFormat("RubyGems token", "RUBYGEMS", "rubygems_{hex:48}"),
    SampleFormat("crates.io token", "CARGO", "cio{alnum:32}"),
    SampleFormat("NuGet key", "NUGET", "oy2{lower:43}"),
    SampleFormat("Docker Hub token", "DOCKER", "dckr_pat_{alnum:27}"),
    SampleFormat("SendGrid key", "SENDGRID", "SG.{alnum:22}.{alnum:43}"),
    SampleFormat("Brevo key", "BREVO", "xkeysib-{hex:64}-{alnum:16}"),
    SampleFormat("Linear token", "LINEAR", "lin_api_{alnum:40}"),
    SampleFormat("Linear token", "LINEAR", "lin_oauth_{hex:64}"),
    SampleFormat("Notion token", "NOTION", "ntn_{dig:11}{alnum:35}"),
    SampleFormat("Shopify token", "SHOPIFY", "shpat_{hex:32}"),
    SampleFormat("Square token", "SQ", "sq0csp-{alnum:43}"),
    SampleFormat("Sentry token", "SENTRY", "sntryu_{hex:64}"),
    SampleFormat("New Relic key", "NEW_RELIC", "NRAK-{upper:27}"),
    SampleFormat("New Relic license key", "NEW_RELIC", "{hex:36}NRAL"),
    SampleFormat("Grafana token", "GRAFANA", "glsa_{alnum:32}_{hex:8}"),
    SampleFormat("Grafana token", "GRAFANA", "glc_eyJ{alnum:100}"),
    SampleFormat("Sonar token", "SONAR", "squ_{hex:40}"),
    SampleFormat("Buildkite token", "BUILDKITE", "bkua_{hex:40}"),
    SampleFormat("Contentful token", "CONTENTFUL", "CFPAT-{alnum:43}"),
    SampleFormat("Dynatrace token", "DYNATRACE", "dt0c01.{upper:24}.{upper:64}"),
    SampleFormat("Figma token", "FIGMA", "figd_{alnum:40}"),
    SampleFormat("HubSpot token", "HUBSPOT", "pat-na1-{uuid}"),
    SampleFormat("1Password service account token", "OP", "ops_eyJ{alnum:300}"),
    SampleFormat("Postman key", "POSTMAN", "PMAK-{hex:24}-{hex:34}"),
    SampleFormat("Doppler token", "DOPPLER", "dp.pt.{alnum:43}"),
    SampleFormat("database URL with password", "DATABASE_URL", "postgres://shop:{alnum:16}@db.shop-prod.net:5432/shop"),
    SampleFormat("database URL with password", "MONGO_URL", "mongodb+srv://shop:{alnum:16}@cluster0.ab1cd.mongodb.net"),
    SampleFormat("database URL with password", "REDIS_URL", "rediss://default:{alnum:32}@eu1-shop.upstash.io:6379"),
    SampleFormat("URL with password", "INDEX_URL", "https://deploy:{alnum:20}@packages.shop-prod.net/simple"),
];

/// Prefixes of formats of which half a token still matches.
const OF_ANY_LENGTH: [&str; 6] = [
    // Half a key is still random under a name that indicates a secret.
    "DefaultEndpointsProtocol",
    "hvs.",
    "pypi-",
    "sk-proj-",
    "rk_live_",
    "ghr_",
];

/// Formats that match only together with their name.
#[rustfmt::skip]
const NAMED: &[SampleFormat] = &[
    SampleFormat("AWS secret key", "AWS_SECRET_ACCESS_KEY", "{b64:40}"),
    SampleFormat("AWS secret key", "aws_secret_key", "{b64:40}"),
    SampleFormat("AWS secret key", "awsSecretAccessKey", "{b64:40}"),
    SampleFormat("AWS secret key", "secretAccessKey", "{b64:40}"),
    SampleFormat("Heroku token", "HEROKU_API_KEY", "{uuid}"),
    SampleFormat("Cloudflare token", "CLOUDFLARE_API_TOKEN", "{alnum:40}"),
    SampleFormat("Cloudflare token", "CF_API_KEY", "{hex:37}"),
    SampleFormat("Vercel token", "VERCEL_TOKEN", "{alnum:24}"),
    SampleFormat("Datadog key", "DD_API_KEY", "{hex:32}"),
    SampleFormat("Datadog key", "DATADOG_APP_KEY", "{hex:40}"),
    SampleFormat("Twilio secret", "TWILIO_AUTH_TOKEN", "{hex:32}"),
    SampleFormat("Twilio secret", "TWILIO_API_KEY", "SK{hex:32}"),
    SampleFormat("Mailgun key", "MAILGUN_API_KEY", "key-{hex:32}"),
    SampleFormat("Mailgun key", "MAILGUN_KEY", "{hex:32}-{hex:8}-{hex:8}"),
    SampleFormat("Discord bot token", "DISCORD_TOKEN", "MT{alnum:24}.{alnum:6}.{alnum:38}"),
    SampleFormat("Square token", "SQUARE_ACCESS_TOKEN", "EAAA{alnum:60}"),
    SampleFormat("JSON Web Token", "SESSION_TOKEN", "{jwt}"),
    SampleFormat("JSON Web Token", "SUPABASE_SERVICE_ROLE", "{jwt}"),
];

/// Templates of settings with `NAME` and its value `§`.
#[rustfmt::skip]
const SETTING_TEMPLATES: &[&str] = &[
    "NAME=§\n", "NAME=\"§\"", "export NAME='§'\n", "  NAME: §\r\n", "NAME: \"§\"", "NAME = \"§\"\n", "NAME = '§'",
    "{\"NAME\": \"§\"}", "{\"a\":1,\"NAME\":\"§\",\"b\":2}", "const NAME = '§';", "const NAME: string = `§`;",
    "const NAME: &str = \"§\";", "static final String NAME = \"§\";", "NAME := \"§\"", "var NAME string = \"§\"",
    "os.environ[\"NAME\"] = \"§\"", "setenv(\"NAME\", \"§\")", "'NAME' => '§',", "$config['NAME'] = '§';",
    "ENV NAME §\n", "docker run -e NAME=§ shop", "- name: NAME\n            value: \"§\"\n",
    "<add key=\"NAME\" value=\"§\"/>", "| NAME | `§` |", "\"{\\\"NAME\\\": \\\"§\\\"}\"", "# NAME=§",
];

/// Templates of a token `§` without a name that indicates a secret.
#[rustfmt::skip]
const TOKEN_TEMPLATES: &[&str] = &[
    "§", "Authorization: Bearer §\n", "curl -H \"Authorization: Bearer §\" https://api.shop.dev", "curl -u \"§:\" https://api.shop.dev",
    "https://api.shop.dev/v1?key=§&page=1", "https://§:x-oauth-basic@host.dev/o/r.git", "deploy --token § --yes", "deploy --token=§", "login(\"§\")",
    "[\"§\"]", "(§)", "See `§` for that.", "<token>§</token>", "value=\"line\\n§\\n\"", "token%3D§", "\t§\t", "key:\n  - §\n",
    "# left by mistake: §", "/* § */", "a=1;b=§;c=3", "x § x", "\u{201c}§\u{201d}",
];

/// Generates a random token of a format.
pub(super) fn generate(rng: &mut Rng, format: &str) -> String {
    let mut token = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        let (class, left) = after.split_once('}').unwrap();
        token.push_str(before);
        token.push_str(&piece(rng, class));
        rest = left;
    }
    token + rest
}

/// Generates one piece of a format, such as `hex:32`.
fn piece(rng: &mut Rng, class: &str) -> String {
    const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let (class, count) = class.split_once(':').unwrap_or((class, "0"));
    let of = |letters: String, rng: &mut Rng| -> String {
        let letters: Vec<char> = letters.chars().collect();
        let (min, max) = count.split_once('-').unwrap_or((count, count));
        let (min, max): (usize, usize) = (min.parse().unwrap(), max.parse().unwrap());
        let count = rng.usize(min..=max);
        (0..count)
            .map(|_| letters[rng.usize(..letters.len())])
            .collect()
    };
    match class {
        "alnum" | "word" | "free" | "dot" | "slack" | "path" | "tilde" | "fly" => {
            of(ALNUM.into(), rng)
        }
        // Without `-`, because a token does not include a dash at its end.
        "url" => of(format!("{ALNUM}_"), rng),
        "b64" => of(format!("{ALNUM}+/"), rng),
        "b32" => of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".into(), rng),
        "bech" => of("023456789ACDEFGHJKLMNPQRSTUVWXYZ".into(), rng),
        "upper" => of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789".into(), rng),
        "lower" => of("abcdefghijklmnopqrstuvwxyz0123456789".into(), rng),
        "letter" => of(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".into(),
            rng,
        ),
        "xdig" => of("0123456789abcdefABCDEF".into(), rng),
        "hex" => of("0123456789abcdef".into(), rng),
        "dig" => of("0123456789".into(), rng),
        "uuid" => {
            let hex = HEXLOWER.encode(&rng.u128(..).to_be_bytes());
            [
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..],
            ]
            .join("-")
        }
        "jwt" => {
            let part = |text: String| BASE64URL_NOPAD.encode(text.as_bytes());
            let claims = format!(
                "{{\"iss\":\"shop\",\"ref\":\"{}\",\"role\":\"service\"}}",
                rng.u64(..)
            );
            let signature: Vec<u8> = (0..32).map(|_| rng.u8(..)).collect();
            let header = part("{\"alg\":\"HS256\",\"typ\":\"JWT\"}".into());
            format!(
                "{header}.{}.{}",
                part(claims),
                BASE64URL_NOPAD.encode(&signature)
            )
        }
        other => panic!("unknown class {other}"),
    }
}

fn verdict(text: &str) -> GuardVerdict {
    check_file(
        "src/settings.txt",
        b"",
        text.as_bytes(),
        &AllowList::default(),
    )
}

/// Returns the first 40 lines, cut at 300 characters.
fn excerpt(lines: &[String]) -> String {
    let first = lines
        .iter()
        .take(40)
        .map(|line| line.chars().take(300).collect());
    first.collect::<Vec<String>>().join("\n")
}

fn blocks_as(text: &str, expected: &str) -> bool {
    matches!(verdict(text), GuardVerdict::Block(GuardReason::Content(_, label)) if label == expected)
}

#[test]
fn finds_planted_secrets() {
    let mut rng = Rng::with_seed(20_270_115);
    let mut tried: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut missed = Vec::new();
    let unique = UNIQUE.iter().flat_map(|format| {
        let templates = TOKEN_TEMPLATES.iter().filter(|_| !format.2.contains("://"));
        SETTING_TEMPLATES
            .iter()
            .chain(templates)
            .map(move |template| (format, *template))
    });
    let named = NAMED.iter().flat_map(|format| {
        SETTING_TEMPLATES
            .iter()
            .map(move |template| (format, *template))
    });
    for (SampleFormat(label, name, notation), template) in unique.chain(named) {
        for _ in 0..SAMPLES {
            let token = generate(&mut rng, notation);
            let text = template.replace("NAME", name).replace('§', &token);
            let (tried, found) = tried.entry(label).or_default();
            *tried += 1;
            match verdict(&text) {
                GuardVerdict::Block(_) => *found += 1,
                other => missed.push(format!("{label}: {other:?} for {text:?}")),
            }
        }
    }
    let all: usize = tried.values().map(|(tried, _)| tried).sum();
    assert!(
        missed.len() * 100 <= all,
        "{} of {all}:\n{}",
        missed.len(),
        excerpt(&missed)
    );
    for (label, (tried, found)) in tried {
        assert!(
            found * 100 >= tried * 98,
            "{label}: {found} of {tried}\n{}",
            excerpt(&missed)
        );
    }
}

#[test]
fn finds_every_rule_without_a_planted_secret() {
    let planted: BTreeSet<&str> = UNIQUE.iter().chain(NAMED).map(|format| format.0).collect();
    // Rules that depend on the file or the context are covered by the other test modules.
    let is_tested_elsewhere = |rule: &Rule| {
        !(rule.kind.is_format() || matches!(rule.kind, RuleKind::DatabaseUrl | RuleKind::WebUrl))
    };
    let rules = rules::all()
        .map(|(_, rule)| rule)
        .filter(|rule| !is_tested_elsewhere(rule));
    let mut rng = Rng::with_seed(22);
    for rule in rules.filter(|rule| !planted.contains(rule.label)) {
        for notation in rule.formats {
            let token = generate(
                &mut rng,
                &notation
                    .replace("{tail:", "{alnum:")
                    .replace("{query:", "{alnum:"),
            );
            let text = format!("value = \"{token}\"\n");
            assert_ne!(
                verdict(&text),
                GuardVerdict::Pass,
                "{}: {notation}, {text}",
                rule.label
            );
        }
        assert!(!rule.formats.is_empty(), "{}", rule.label);
    }
}

#[test]
fn reports_the_label_of_the_format() {
    let mut rng = Rng::with_seed(7);
    for SampleFormat(label, name, notation) in UNIQUE.iter().chain(NAMED) {
        let text = format!("{name}=\"{}\"\n", generate(&mut rng, notation));
        let is_other_kind = label.starts_with("AWS secret") || label.ends_with("password");
        assert!(
            blocks_as(&text, label) || is_other_kind,
            "{label}: {:?} for {text}",
            verdict(&text)
        );
    }
}

#[test]
fn passes_values_that_only_resemble_tokens() {
    let mut rng = Rng::with_seed(41);
    let mut alarms = Vec::new();
    for SampleFormat(label, name, notation) in
        UNIQUE.iter().filter(|format| !format.2.contains("://"))
    {
        for _ in 0..SAMPLES {
            let token = generate(&mut rng, notation);
            let body = notation.find('{').unwrap_or_default();
            let prefix = &notation[..body];
            let half = &token[..body + (token.len() - body) / 2];
            let mut near = vec![
                format!("{prefix}{}", "x".repeat(token.len() - body)),
                format!("{prefix}<{}>", name.to_lowercase()),
                format!("{prefix}${{{name}}}"),
                format!("{prefix}{{{{ {name} }}}}"),
                format!("{prefix}your-{}-here", name.to_lowercase()),
                format!("{prefix}…"),
                format!(
                    "{prefix}{}",
                    "abcdefghijklmnopqrstuvwxyz"
                        .repeat(20)
                        .split_at(token.len() - body)
                        .0
                ),
                // With characters outside the class.
                token
                    .chars()
                    .enumerate()
                    .map(|(at, c)| if at >= body && at % 5 == 0 { '?' } else { c })
                    .collect(),
            ];
            // Half a token does not match formats of a fixed length.
            if !OF_ANY_LENGTH.iter().any(|open| notation.starts_with(open)) {
                near.push(half.to_owned());
            }
            for token in near {
                for template in ["§", "NAME=\"§\"\n", "{\"NAME\":\"§\"}", "let x = f('§');"] {
                    let text = template.replace("NAME", "VALUE").replace('§', &token);
                    if let GuardVerdict::Block(reason) = verdict(&text) {
                        alarms.push(format!("{label}: {reason} for {text:?}"));
                    }
                }
            }
        }
    }
    assert!(
        alarms.is_empty(),
        "{} alarms:\n{}",
        alarms.len(),
        excerpt(&alarms)
    );
}

#[test]
fn passes_tokens_that_are_too_long() {
    let mut rng = Rng::with_seed(3);
    for notation in [
        "AKIA{b32:17}",
        "npm_{alnum:37}",
        "AIza{alnum:36}",
        "hf_{alnum:35}",
        "dop_v1_{hex:65}",
        "shpat_{hex:33}",
        "cio{alnum:33}",
    ] {
        let text = format!("x = \"{}\"", generate(&mut rng, notation));
        assert!(!matches!(verdict(&text), GuardVerdict::Block(_)), "{text}");
    }
}

/// Templates of random public values: hashes, ids, lock files, images, public keys.
#[rustfmt::skip]
const PUBLIC: &[&str] = &[
    "commit {hex:40}", "sha256:{hex:64}", "\"integrity\": \"sha512-{b64:86}==\",", "checksum = \"{hex:64}\"",
    "github.com/a/b v1.2.3 h1:{b64:43}=", "id: {uuid}", "ETag: \"{hex:32}\"", "  version \"1.2.3\"\n  resolved \"https://registry.yarnpkg.com/a/-/a-1.2.3.tgz#{hex:40}\"",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{alnum:43} me@host", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAB{b64:340}== me@host",
    "data:image/png;base64,iVBORw0KGgo{b64:600}", "<script integrity=\"sha384-{b64:64}\">", "uses: actions/checkout@{hex:40} # v4",
    "\"node_modules/mailgun.js\": {\"version\": \"9.3.0\", \"integrity\": \"sha512-{b64:86}==\"}",
    "\"node_modules/twilio\": {\"resolved\": \"https://registry.npmjs.org/twilio/-/twilio-4.0.0.tgz\", \"integrity\": \"sha512-{b64:86}==\"}",
    "\"dd-trace\": {\"integrity\": \"sha512-{b64:86}==\"}", "aws-sdk@2.1: sha512-{b64:86}==", "\"@aws-sdk/client-secrets-manager\": \"{hex:40}\"",
    "aws-secret-rotation: {hex:40}", "cloudflare.zone = \"{hex:32}\"", "heroku app {uuid}", "TWILIO_ACCOUNT_SID=AC{hex:32}", "SENTRY_DSN=https://{hex:32}@o12.ingest.sentry.io/34",
    "stripe.setKey('pk_live_{alnum:24}')", "key: 'pk_test_{alnum:24}'", "apiKey: 'sk_test_{alnum:24}'", "var a={alnum:12},token=r.{alnum:3},secret=n(e);",
    "discord.com/channels/{dig:18}/{dig:18}", "telegram {dig:10}:{alnum:33}", "-----BEGIN CERTIFICATE-----\n{b64:64}\n{b64:64}\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n{b64:64}\n-----END PUBLIC KEY-----", "age1{lower:58}", "M{dig:3}.{dig:2}L{dig:3}.{dig:2}Z", "w{alnum:20}.prototype.{alnum:8}",
    "postgres://shop:${DB_PASSWORD}@db.shop-prod.net/shop", "postgres://shop:{alnum:12}@localhost/shop", "redis://:{alnum:12}@redis:6379", "https://user:password123@proxy.shop.net",
    "https://git:{{ token }}@host.net/x", "mysql://root:secret@db.example.com", "Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0.{alnum:43}",
];

#[test]
fn passes_random_public_values() {
    let mut rng = Rng::with_seed(99);
    let mut alarms = Vec::new();
    for notation in PUBLIC {
        for _ in 0..200 {
            let text = generate_lines(&mut rng, notation);
            if let GuardVerdict::Block(reason) = verdict(&text) {
                alarms.push(format!("{reason} for {text:?}"));
            }
        }
    }
    assert!(
        alarms.is_empty(),
        "{} alarms:\n{}",
        alarms.len(),
        excerpt(&alarms)
    );
}

/// Like [`generate`], but keeps braces that do not name a class.
pub(super) fn generate_lines(rng: &mut Rng, template: &str) -> String {
    let is_class = |text: &str| {
        text.split_once('}').is_some_and(|(class, _)| {
            class == "uuid"
                || class
                    .split_once(':')
                    .is_some_and(|(_, count)| count.parse::<usize>().is_ok())
        })
    };
    let mut parts = template.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = format!("{{{part}");
        text.push_str(&if is_class(&part[1..]) {
            generate(rng, &part)
        } else {
            part
        });
    }
    text
}

#[test]
fn passes_base64_encoded_images() {
    let mut rng = Rng::with_seed(5);
    for length in [76, 64, usize::MAX] {
        let bytes: Vec<u8> = (0..2_000_000).map(|_| rng.u8(..)).collect();
        let encoded = BASE64.encode(&bytes);
        let lines: Vec<&[u8]> = encoded
            .as_bytes()
            .chunks(length.min(encoded.len()))
            .collect();
        let verdict = check_file("logo.txt", b"", &lines.join(&b'\n'), &AllowList::default());
        assert_eq!(verdict, GuardVerdict::Pass, "lines of {length}");
        let binary = check_file("logo.png", b"", &bytes, &AllowList::default());
        assert_eq!(binary, GuardVerdict::Pass);
    }
}
