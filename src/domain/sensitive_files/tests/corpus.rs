//! Made-up secrets of every published format in every place where people leave them, and what looks
//! like a secret and is none. All of it is drawn by lot from fixed seeds, so that no token stands in
//! this file.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use fastrand::Rng;

use super::super::rules::{self, Rule, RuleKind};
use super::{AllowList, GuardReason, GuardVerdict, check_file};

/// How many secrets are drawn for each format and place?
const DRAWS: usize = 8;

/// A format as its vendor publishes it: what we call it, the name that a setting of it has, and its
/// shape. `{hex:32}` is thirty-two characters of a class.
struct Format(&'static str, &'static str, &'static str);

#[rustfmt::skip]
const FREE: &[Format] = &[
    Format("age secret key", "AGE_KEY", "AGE-SECRET-KEY-1{bech:58}"),
    Format("AWS access key", "AWS_ACCESS_KEY_ID", "AKIA{b32:16}"),
    Format("AWS access key", "AWS_ACCESS_KEY_ID", "ASIA{b32:16}"),
    Format("Amazon Bedrock key", "BEDROCK_KEY", "ABSK{alnum:110}"),
    Format("Google API key", "GOOGLE_KEY", "AIza{url:35}"),
    Format("Google OAuth client secret", "GOOGLE_CLIENT", "GOCSPX-{alnum:28}"),
    Format("Google OAuth access token", "GOOGLE_ACCESS", "ya29.{alnum:120}"),
    Format("Azure storage account key", "AZURE_STORAGE", "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={alnum:86}==;EndpointSuffix=core.windows.net"),
    Format("Azure shared access key", "SERVICE_BUS", "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={alnum:43}="),
    Format("Azure shared access signature", "SAS_URL", "https://shop.blob.core.windows.net/c?sv=2024-11-04&ss=b&srt=co&sp=rwd&se=2027-01-01&sig={alnum:43}%3D"),
    Format("Azure client secret", "AZURE_CLIENT_SECRET", "{alnum:3}8Q~{alnum:34}"),
    Format("Azure DevOps token", "AZURE_PAT", "{alnum:76}AZDO{alnum:4}"),
    Format("DigitalOcean token", "DO_TOKEN", "dop_v1_{hex:64}"),
    Format("Fly.io token", "FLY_API_TOKEN", "FlyV1 fm2_{b64:120}"),
    Format("Fly.io token", "FLY_API_TOKEN", "fo1_{alnum:43}"),
    Format("Heroku token", "HEROKU_TOKEN", "HRKU-AA{alnum:58}"),
    Format("Alibaba Cloud access key", "ALIBABA_KEY", "LTAI5t{alnum:18}"),
    Format("Terraform Cloud token", "TF_TOKEN", "{alnum:14}.atlasv1.{alnum:67}"),
    Format("Vault token", "VAULT_TOKEN", "hvs.{alnum:90}"),
    Format("Pulumi token", "PULUMI_TOKEN", "pul-{hex:40}"),
    Format("Databricks token", "DATABRICKS_TOKEN", "dapi{hex:32}"),
    Format("Cloudflare origin key", "CF_ORIGIN", "v1.0-{hex:24}-{hex:146}"),
    Format("Cloudflare token", "CF", "cfut_{alnum:48}"),
    Format("Vercel token", "VERCEL", "vcp_{alnum:56}"),
    Format("Netlify token", "NETLIFY_TOKEN", "nfp_{alnum:36}"),
    Format("Tailscale key", "TS_KEY", "tskey-auth-{alnum:12}CNTRL-{alnum:32}"),
    Format("PlanetScale credential", "PSCALE", "pscale_tkn_{alnum:43}"),
    Format("PlanetScale credential", "PSCALE", "pscale_pw_{alnum:43}"),
    Format("Supabase key", "SUPABASE", "sbp_{hex:40}"),
    Format("Supabase key", "SUPABASE", "sb_secret_{alnum:31}"),
    Format("GitHub token", "GITHUB_TOKEN", "ghp_{alnum:36}"),
    Format("GitHub token", "GITHUB_TOKEN", "ghs_{alnum:36}"),
    Format("GitHub token", "GITHUB_TOKEN", "gho_{alnum:36}"),
    Format("GitHub token", "GITHUB_TOKEN", "ghu_{alnum:36}"),
    Format("GitHub token", "GITHUB_TOKEN", "ghr_{alnum:76}"),
    Format("GitHub token", "GITHUB_TOKEN", "github_pat_{alnum:22}_{alnum:59}"),
    Format("GitLab token", "GITLAB_TOKEN", "glpat-{alnum:20}"),
    Format("GitLab token", "GITLAB_TOKEN", "glrt-{alnum:20}"),
    Format("Bitbucket or Atlassian token", "JIRA_TOKEN", "ATATT3xFfGF0{alnum:180}"),
    Format("Bitbucket or Atlassian token", "BITBUCKET", "ATBB{alnum:32}"),
    Format("Slack token", "SLACK", "xoxb-{dig:12}-{dig:13}-{alnum:24}"),
    Format("Slack token", "SLACK", "xoxp-{dig:12}-{dig:12}-{dig:12}-{hex:32}"),
    Format("Slack app token", "SLACK_APP", "xapp-1-A{upper:10}-{dig:13}-{hex:64}"),
    Format("Slack webhook", "SLACK_URL", "https://hooks.slack.com/services/T{upper:10}/B{upper:10}/{alnum:24}"),
    Format("Teams webhook", "TEAMS_URL", "https://shop.webhook.office.com/webhookb2/{uuid}@{uuid}/IncomingWebhook/{hex:32}/{uuid}"),
    Format("Discord webhook", "DISCORD_URL", "https://discord.com/api/webhooks/{dig:18}/{alnum:68}"),
    Format("Telegram bot token", "TELEGRAM", "{dig:10}:AA{alnum:33}"),
    Format("Stripe live key", "STRIPE", "sk_live_{alnum:24}"),
    Format("Stripe live key", "STRIPE", "rk_live_{alnum:99}"),
    Format("webhook signing secret", "SIGNING", "whsec_{alnum:32}"),
    Format("Anthropic key", "ANTHROPIC_API_KEY", "sk-ant-api03-{alnum:93}AA"),
    Format("OpenAI key", "OPENAI_API_KEY", "sk-proj-{alnum:74}T3BlbkFJ{alnum:74}"),
    Format("OpenAI key", "OPENAI_API_KEY", "sk-{alnum:20}T3BlbkFJ{alnum:20}"),
    Format("OpenRouter key", "OPENROUTER", "sk-or-v1-{hex:64}"),
    Format("Groq key", "GROQ", "gsk_{alnum:52}"),
    Format("xAI key", "XAI", "xai-{alnum:80}"),
    Format("Perplexity key", "PPLX", "pplx-{alnum:48}"),
    Format("Replicate token", "REPLICATE", "r8_{alnum:37}"),
    Format("Hugging Face token", "HF_TOKEN", "hf_{alnum:34}"),
    Format("npm token", "NPM_TOKEN", "npm_{alnum:36}"),
    Format("PyPI token", "PYPI", "pypi-AgEIcHlwaS5vcmc{alnum:120}"),
    Format("RubyGems token", "RUBYGEMS", "rubygems_{hex:48}"),
    Format("crates.io token", "CARGO", "cio{alnum:32}"),
    Format("NuGet key", "NUGET", "oy2{lower:43}"),
    Format("Docker Hub token", "DOCKER", "dckr_pat_{alnum:27}"),
    Format("SendGrid key", "SENDGRID", "SG.{alnum:22}.{alnum:43}"),
    Format("Brevo key", "BREVO", "xkeysib-{hex:64}-{alnum:16}"),
    Format("Linear token", "LINEAR", "lin_api_{alnum:40}"),
    Format("Linear token", "LINEAR", "lin_oauth_{hex:64}"),
    Format("Notion token", "NOTION", "ntn_{dig:11}{alnum:35}"),
    Format("Shopify token", "SHOPIFY", "shpat_{hex:32}"),
    Format("Square token", "SQ", "sq0csp-{alnum:43}"),
    Format("Sentry token", "SENTRY", "sntryu_{hex:64}"),
    Format("New Relic key", "NEW_RELIC", "NRAK-{upper:27}"),
    Format("New Relic license key", "NEW_RELIC", "{hex:36}NRAL"),
    Format("Grafana token", "GRAFANA", "glsa_{alnum:32}_{hex:8}"),
    Format("Grafana token", "GRAFANA", "glc_eyJ{alnum:100}"),
    Format("Sonar token", "SONAR", "squ_{hex:40}"),
    Format("Buildkite token", "BUILDKITE", "bkua_{hex:40}"),
    Format("Contentful token", "CONTENTFUL", "CFPAT-{alnum:43}"),
    Format("Dynatrace token", "DYNATRACE", "dt0c01.{upper:24}.{upper:64}"),
    Format("Figma token", "FIGMA", "figd_{alnum:40}"),
    Format("HubSpot token", "HUBSPOT", "pat-na1-{uuid}"),
    Format("1Password service account token", "OP", "ops_eyJ{alnum:300}"),
    Format("Postman key", "POSTMAN", "PMAK-{hex:24}-{hex:34}"),
    Format("Doppler token", "DOPPLER", "dp.pt.{alnum:43}"),
    Format("database URL with password", "DATABASE_URL", "postgres://shop:{alnum:16}@db.shop-prod.net:5432/shop"),
    Format("database URL with password", "MONGO_URL", "mongodb+srv://shop:{alnum:16}@cluster0.ab1cd.mongodb.net"),
    Format("database URL with password", "REDIS_URL", "rediss://default:{alnum:32}@eu1-shop.upstash.io:6379"),
    Format("URL with password", "INDEX_URL", "https://deploy:{alnum:20}@packages.shop-prod.net/simple"),
];

/// Formats of which half a token is one, too.
const OF_ANY_LENGTH: [&str; 6] = [
    // Half a key under a telling name is random still.
    "DefaultEndpointsProtocol",
    "hvs.",
    "pypi-",
    "sk-proj-",
    "rk_live_",
    "ghr_",
];

/// Formats that are nothing without their name.
#[rustfmt::skip]
const NAMED: &[Format] = &[
    Format("AWS secret key", "AWS_SECRET_ACCESS_KEY", "{b64:40}"),
    Format("AWS secret key", "aws_secret_key", "{b64:40}"),
    Format("AWS secret key", "awsSecretAccessKey", "{b64:40}"),
    Format("AWS secret key", "secretAccessKey", "{b64:40}"),
    Format("Heroku token", "HEROKU_API_KEY", "{uuid}"),
    Format("Cloudflare token", "CLOUDFLARE_API_TOKEN", "{alnum:40}"),
    Format("Cloudflare token", "CF_API_KEY", "{hex:37}"),
    Format("Vercel token", "VERCEL_TOKEN", "{alnum:24}"),
    Format("Datadog key", "DD_API_KEY", "{hex:32}"),
    Format("Datadog key", "DATADOG_APP_KEY", "{hex:40}"),
    Format("Twilio secret", "TWILIO_AUTH_TOKEN", "{hex:32}"),
    Format("Twilio secret", "TWILIO_API_KEY", "SK{hex:32}"),
    Format("Mailgun key", "MAILGUN_API_KEY", "key-{hex:32}"),
    Format("Mailgun key", "MAILGUN_KEY", "{hex:32}-{hex:8}-{hex:8}"),
    Format("Discord bot token", "DISCORD_TOKEN", "MT{alnum:24}.{alnum:6}.{alnum:38}"),
    Format("Square token", "SQUARE_ACCESS_TOKEN", "EAAA{alnum:60}"),
    Format("signed token", "SESSION_TOKEN", "{jwt}"),
    Format("signed token", "SUPABASE_SERVICE_ROLE", "{jwt}"),
];

/// Where a setting stands: `NAME` and its value `§`.
#[rustfmt::skip]
const SETTINGS: &[&str] = &[
    "NAME=§\n", "NAME=\"§\"", "export NAME='§'\n", "  NAME: §\r\n", "NAME: \"§\"", "NAME = \"§\"\n", "NAME = '§'",
    "{\"NAME\": \"§\"}", "{\"a\":1,\"NAME\":\"§\",\"b\":2}", "const NAME = '§';", "const NAME: string = `§`;",
    "const NAME: &str = \"§\";", "static final String NAME = \"§\";", "NAME := \"§\"", "var NAME string = \"§\"",
    "os.environ[\"NAME\"] = \"§\"", "setenv(\"NAME\", \"§\")", "'NAME' => '§',", "$config['NAME'] = '§';",
    "ENV NAME §\n", "docker run -e NAME=§ shop", "- name: NAME\n            value: \"§\"\n",
    "<add key=\"NAME\" value=\"§\"/>", "| NAME | `§` |", "\"{\\\"NAME\\\": \\\"§\\\"}\"", "# NAME=§",
];

/// Where a token may stand with no name that tells.
#[rustfmt::skip]
const PLACES: &[&str] = &[
    "§", "Authorization: Bearer §\n", "curl -H \"Authorization: Bearer §\" https://api.shop.dev", "curl -u \"§:\" https://api.shop.dev",
    "https://api.shop.dev/v1?key=§&page=1", "https://§:x-oauth-basic@host.dev/o/r.git", "deploy --token § --yes", "deploy --token=§", "login(\"§\")",
    "[\"§\"]", "(§)", "See `§` for that.", "<token>§</token>", "value=\"line\\n§\\n\"", "token%3D§", "\t§\t", "key:\n  - §\n",
    "# left by mistake: §", "/* § */", "a=1;b=§;c=3", "x § x", "\u{201c}§\u{201d}",
];

/// Draws a token of a shape.
pub(super) fn drawn(rng: &mut Rng, shape: &str) -> String {
    let mut token = String::new();
    let mut rest = shape;
    while let Some((before, after)) = rest.split_once('{') {
        let (class, left) = after.split_once('}').unwrap();
        token.push_str(before);
        token.push_str(&piece(rng, class));
        rest = left;
    }
    token + rest
}

fn piece(rng: &mut Rng, class: &str) -> String {
    const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let (class, count) = class.split_once(':').unwrap_or((class, "0"));
    let of = |letters: String, rng: &mut Rng| -> String {
        let letters: Vec<char> = letters.chars().collect();
        let (least, most) = count.split_once('-').unwrap_or((count, count));
        let (least, most): (usize, usize) = (least.parse().unwrap(), most.parse().unwrap());
        let count = rng.usize(least..=most);
        (0..count)
            .map(|_| letters[rng.usize(..letters.len())])
            .collect()
    };
    match class {
        "alnum" | "word" | "free" | "dot" | "slack" | "path" | "tilde" | "fly" => {
            of(ALNUM.into(), rng)
        }
        // A token that ended in a dash would end before it.
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
        other => panic!("no class {other}"),
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

/// The first of many.
fn shown(lines: &[String]) -> String {
    let first = lines
        .iter()
        .take(40)
        .map(|line| line.chars().take(300).collect());
    first.collect::<Vec<String>>().join("\n")
}

fn blocks_as(text: &str, what: &str) -> bool {
    matches!(verdict(text), GuardVerdict::Block(GuardReason::Content(_, named)) if named == what)
}

#[test]
fn planted_secrets_are_found() {
    let mut rng = Rng::with_seed(20_270_115);
    let mut tried: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut missed = Vec::new();
    let free = FREE.iter().flat_map(|format| {
        let places = PLACES.iter().filter(|_| !format.2.contains("://"));
        SETTINGS
            .iter()
            .chain(places)
            .map(move |place| (format, *place))
    });
    let named = NAMED
        .iter()
        .flat_map(|format| SETTINGS.iter().map(move |place| (format, *place)));
    for (Format(what, name, shape), place) in free.chain(named) {
        for _ in 0..DRAWS {
            let token = drawn(&mut rng, shape);
            let text = place.replace("NAME", name).replace('§', &token);
            let (tried, found) = tried.entry(what).or_default();
            *tried += 1;
            match verdict(&text) {
                GuardVerdict::Block(_) => *found += 1,
                other => missed.push(format!("{what}: {other:?} for {text:?}")),
            }
        }
    }
    let all: usize = tried.values().map(|(tried, _)| tried).sum();
    assert!(
        missed.len() * 100 <= all,
        "{} of {all}:\n{}",
        missed.len(),
        shown(&missed)
    );
    for (what, (tried, found)) in tried {
        assert!(
            found * 100 >= tried * 98,
            "{what}: {found} of {tried}\n{}",
            shown(&missed)
        );
    }
}

#[test]
fn every_blocking_format_is_planted() {
    let planted: BTreeSet<&str> = FREE.iter().chain(NAMED).map(|format| format.0).collect();
    // These depend on the file they stand in; the tables beside this one hold them.
    let elsewhere = |rule: &Rule| {
        !(rule.kind.is_format() || matches!(rule.kind, RuleKind::DatabaseUrl | RuleKind::WebUrl))
    };
    let rules = rules::all()
        .map(|(_, rule)| rule)
        .filter(|rule| !elsewhere(rule));
    let mut rng = Rng::with_seed(22);
    for rule in rules.filter(|rule| !planted.contains(rule.label)) {
        for shape in rule.formats {
            let token = drawn(
                &mut rng,
                &shape
                    .replace("{tail:", "{alnum:")
                    .replace("{query:", "{alnum:"),
            );
            let text = format!("value = \"{token}\"\n");
            assert_ne!(
                verdict(&text),
                GuardVerdict::Pass,
                "{}: {shape}, {text}",
                rule.label
            );
        }
        assert!(!rule.formats.is_empty(), "{}", rule.label);
    }
}

#[test]
fn a_secret_is_named_for_what_it_is() {
    let mut rng = Rng::with_seed(7);
    for Format(what, name, shape) in FREE.iter().chain(NAMED) {
        let text = format!("{name}=\"{}\"\n", drawn(&mut rng, shape));
        let is_other_kind = what.starts_with("AWS secret") || what.ends_with("password");
        assert!(
            blocks_as(&text, what) || is_other_kind,
            "{what}: {:?} for {text}",
            verdict(&text)
        );
    }
}

#[test]
fn what_only_resembles_a_token_passes() {
    let mut rng = Rng::with_seed(41);
    let mut alarms = Vec::new();
    for Format(what, name, shape) in FREE.iter().filter(|format| !format.2.contains("://")) {
        for _ in 0..DRAWS {
            let token = drawn(&mut rng, shape);
            let body = shape.find('{').unwrap_or_default();
            let prefix = &shape[..body];
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
                // Another alphabet, in the middle.
                token
                    .chars()
                    .enumerate()
                    .map(|(at, c)| if at >= body && at % 5 == 0 { '?' } else { c })
                    .collect(),
            ];
            // Of formats with an end of their own, half is no token.
            if !OF_ANY_LENGTH.iter().any(|open| shape.starts_with(open)) {
                near.push(half.to_owned());
            }
            for token in near {
                for place in ["§", "NAME=\"§\"\n", "{\"NAME\":\"§\"}", "let x = f('§');"] {
                    let text = place.replace("NAME", "VALUE").replace('§', &token);
                    if let GuardVerdict::Block(reason) = verdict(&text) {
                        alarms.push(format!("{what}: {reason} for {text:?}"));
                    }
                }
            }
        }
    }
    assert!(
        alarms.is_empty(),
        "{} alarms:\n{}",
        alarms.len(),
        shown(&alarms)
    );
}

#[test]
fn a_token_that_is_too_long_passes() {
    let mut rng = Rng::with_seed(3);
    for shape in [
        "AKIA{b32:17}",
        "npm_{alnum:37}",
        "AIza{alnum:36}",
        "hf_{alnum:35}",
        "dop_v1_{hex:65}",
        "shpat_{hex:33}",
        "cio{alnum:33}",
    ] {
        let text = format!("x = \"{}\"", drawn(&mut rng, shape));
        assert!(!matches!(verdict(&text), GuardVerdict::Block(_)), "{text}");
    }
}

/// What else is random and public: hashes, ids, locks, images, keys that are meant to be seen.
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
fn what_is_random_and_public_passes() {
    let mut rng = Rng::with_seed(99);
    let mut alarms = Vec::new();
    for shape in PUBLIC {
        for _ in 0..200 {
            let text = drawn_lines(&mut rng, shape);
            if let GuardVerdict::Block(reason) = verdict(&text) {
                alarms.push(format!("{reason} for {text:?}"));
            }
        }
    }
    assert!(
        alarms.is_empty(),
        "{} alarms:\n{}",
        alarms.len(),
        shown(&alarms)
    );
}

/// The same, where braces of a template are text.
pub(super) fn drawn_lines(rng: &mut Rng, shape: &str) -> String {
    let is_class = |text: &str| {
        text.split_once('}').is_some_and(|(class, _)| {
            class == "uuid"
                || class
                    .split_once(':')
                    .is_some_and(|(_, count)| count.parse::<usize>().is_ok())
        })
    };
    let mut parts = shape.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = format!("{{{part}");
        text.push_str(&if is_class(&part[1..]) {
            drawn(rng, &part)
        } else {
            part
        });
    }
    text
}

#[test]
fn encoded_images_hold_no_tokens() {
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
