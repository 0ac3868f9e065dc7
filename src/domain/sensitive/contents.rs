//! Secrets by their shape, in the lines that a change adds.
//!
//! Every rule is a format that its vendor publishes, with a keyword that must be there. One pass of
//! a keyword automaton finds which rules may match at all, and only their expressions run: that is
//! two orders faster than running all. A generic "this looks random" never blocks; only formats do.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::bytes::{Captures, Regex, RegexBuilder};

use super::Category;

/// One secret's shape.
struct Rule {
    what: &'static str,
    category: Category,
    /// The cheap test: at least one of these stands in the text, in whatever case.
    keywords: &'static [&'static str],
    pattern: &'static str,
    /// Only files whose path ends so are judged; empty means all.
    files: &'static [&'static str],
    check: Check,
}

/// What a match must pass beside its expression.
#[derive(Clone, Copy)]
enum Check {
    /// The token itself must not be an example or a filler.
    Token,
    /// Group 1 is a password in clear, not a placeholder.
    Password,
    /// Group 1 is a password, group 2 a host out in the world.
    DatabaseUrl,
    /// The expression says it all.
    Nothing,
}

const fn token(
    category: Category,
    what: &'static str,
    keywords: &'static [&'static str],
    pattern: &'static str,
) -> Rule {
    Rule {
        what,
        category,
        keywords,
        pattern,
        files: &[],
        check: Check::Token,
    }
}

const fn setting(
    category: Category,
    what: &'static str,
    keywords: &'static [&'static str],
    pattern: &'static str,
    files: &'static [&'static str],
) -> Rule {
    Rule {
        what,
        category,
        keywords,
        pattern,
        files,
        check: Check::Password,
    }
}

use Category::{Cloud, Database, EnvironmentAndConfig, KeysAndCertificates, TokensAndAuth};

#[rustfmt::skip]
const RULES: &[Rule] = &[
    Rule { what: "private key", category: KeysAndCertificates, keywords: &["PRIVATE KEY"], files: &[], check: Check::Nothing,
        // Key material must follow: code that parses keys holds the bare header.
        pattern: r#"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\\r|\\n|[\s"'+,;\\>|]|(?:Proc-Type|DEK-Info|Version|Comment|Hash)[^\n]*\n){0,40}[A-Za-z0-9+/=]{32}"# },
    Rule { what: "PuTTY private key", category: KeysAndCertificates, keywords: &["PuTTY-User-Key-File"], files: &[], check: Check::Nothing,
        pattern: r"PuTTY-User-Key-File-[23]: \S+" },
    token(KeysAndCertificates, "age secret key", &["AGE-SECRET-KEY-1"], r"\bAGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}\b"),

    token(Cloud, "AWS access key", &["AKIA", "ASIA"], r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    setting(Cloud, "AWS secret key", &["secret"], r#"(?i)aws.{0,20}secret.{0,20}?["']?\s{0,4}(?:[:=]|=>)\s{0,4}["']?([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)"#, &[]),
    token(Cloud, "Google API key", &["AIza"], r"\bAIza[0-9A-Za-z_-]{35}(?:[^0-9A-Za-z_-]|$)"),
    token(Cloud, "Google OAuth client secret", &["GOCSPX-"], r"\bGOCSPX-[A-Za-z0-9_-]{28}\b"),
    token(Cloud, "Azure storage account key", &["AccountKey="], r"AccountKey=[A-Za-z0-9+/]{86}=="),
    token(Cloud, "Azure client secret", &["Q~"], r"(?:^|[^A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}(?:[^A-Za-z0-9_~.-]|$)"),
    token(Cloud, "DigitalOcean token", &["dop_v1_", "doo_v1_", "dor_v1_"], r"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    token(Cloud, "Fly.io token", &["fm1_", "fm2_", "fm1r_", "fm1a_"], r"\bfm[12][ar]?_[A-Za-z0-9+/=_-]{80,}"),
    token(Cloud, "Heroku token", &["HRKU-"], r"\bHRKU-AA[0-9A-Za-z_-]{58}\b"),
    token(Cloud, "Alibaba Cloud access key", &["LTAI"], r"\bLTAI5t[A-Za-z0-9]{18}\b"),
    token(Cloud, "Terraform Cloud token", &[".atlasv1."], r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}"),
    token(Cloud, "Vault token", &["hvs.", "hvb."], r"\bhv[sb]\.[A-Za-z0-9_-]{90,}"),
    token(Cloud, "Pulumi token", &["pul-"], r"\bpul-[a-f0-9]{40}\b"),
    token(Cloud, "Databricks token", &["dapi"], r"\bdapi[a-f0-9]{32}(?:-\d)?\b"),
    token(Cloud, "Cloudflare origin key", &["v1.0-"], r"\bv1\.0-[a-f0-9]{24}-[a-f0-9]{146}\b"),

    Rule { what: "database URL with password", category: Database, keywords: &["://"], files: &[], check: Check::DatabaseUrl,
        pattern: r"(?i)\b(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?|mssql|sqlserver|cockroachdb|clickhouse)(?:\+[a-z0-9]+)?://[^\s:/@]*:([^\s/@]{4,})@([A-Za-z0-9._-]+)" },
    setting(Database, "connection string with password", &["password=", "pwd="], r#"(?i)(?:server|data source|host)=[^;"']{3,};[^"']*?(?:password|pwd)=([^;"'\s]{4,})"#, &[".json", ".config", ".xml", ".yml", ".yaml", ".properties"]),
    setting(Database, "database password", &["password"], r#"(?im)^\s*password\s*:\s*["']?([^\s"'#]{4,})"#, &["database.yml", "database.yaml"]),
    setting(Database, "database password", &["DB_PASSWORD"], r#"(?i)define\(\s*['"]DB_PASSWORD['"]\s*,\s*['"]([^'"]{4,})['"]"#, &["wp-config.php"]),
    token(Database, "PlanetScale credential", &["pscale_"], r"\bpscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{32,64}"),

    token(TokensAndAuth, "GitHub token", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], r"\bgh[pousr]_[A-Za-z0-9]{36,251}\b"),
    token(TokensAndAuth, "GitHub token", &["github_pat_"], r"\bgithub_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}\b"),
    token(TokensAndAuth, "GitLab token", &["glpat-", "glptt-", "gldt-", "glrt-", "glcbt-"], r"\bgl(?:pat|ptt|dt|rt|cbt)-[A-Za-z0-9_-]{20,}"),
    token(TokensAndAuth, "Bitbucket or Atlassian token", &["ATATT3", "ATCTT3", "ATBB"], r"\b(?:AT[AC]TT3[A-Za-z0-9_=-]{180,}|ATBB[A-Za-z0-9]{32}\b)"),
    token(TokensAndAuth, "Slack token", &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe"], r"\bxox(?:[abprs]|e(?:\.xox[bp])?)-[0-9A-Za-z]{1,}-[0-9A-Za-z-]{20,}"),
    token(TokensAndAuth, "Slack app token", &["xapp-"], r"\bxapp-\d-[A-Z0-9]+-\d+-[a-f0-9]{32,}"),
    token(TokensAndAuth, "Slack webhook", &["hooks.slack.com"], r"hooks\.slack\.com/(?:services|workflows)/T[A-Z0-9]{8,}/[AB][A-Z0-9]{8,}/[A-Za-z0-9/]{20,}"),
    token(TokensAndAuth, "Discord webhook", &["/api/webhooks/"], r"discord(?:app)?\.com/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,}"),
    token(TokensAndAuth, "Telegram bot token", &[":AA"], r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}(?:[^A-Za-z0-9_-]|$)"),
    token(TokensAndAuth, "Stripe live key", &["sk_live_", "rk_live_"], r"\b[sr]k_live_[0-9A-Za-z]{24,}"),
    token(TokensAndAuth, "Anthropic key", &["sk-ant-"], r"\bsk-ant-[a-z]{3,8}\d{2}-[A-Za-z0-9_-]{40,}"),
    token(TokensAndAuth, "OpenAI key", &["sk-proj-", "sk-svcacct-", "sk-admin-", "T3BlbkFJ"], r"\bsk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,}|[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})"),
    token(TokensAndAuth, "Hugging Face token", &["hf_"], r"\bhf_[A-Za-z0-9]{34}\b"),
    token(TokensAndAuth, "npm token", &["npm_"], r"\bnpm_[A-Za-z0-9]{36}\b"),
    token(TokensAndAuth, "PyPI token", &["pypi-AgEIcHlwaS5vcmc", "pypi-AgENdGVzdC5weXBpLm9yZw"], r"\bpypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBpLm9yZw)[A-Za-z0-9_-]{50,}"),
    token(TokensAndAuth, "RubyGems token", &["rubygems_"], r"\brubygems_[a-f0-9]{48}\b"),
    token(TokensAndAuth, "crates.io token", &["cio"], r"\bcio[A-Za-z0-9]{32}\b"),
    token(TokensAndAuth, "NuGet key", &["oy2"], r"\boy2[a-z0-9]{43}\b"),
    token(TokensAndAuth, "Docker Hub token", &["dckr_pat_", "dckr_oat_"], r"\bdckr_[po]at_[A-Za-z0-9_-]{27,}"),
    token(TokensAndAuth, "SendGrid key", &["SG."], r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}\b"),
    token(TokensAndAuth, "Linear token", &["lin_api_", "lin_oauth_"], r"\blin_(?:api_[A-Za-z0-9]{40}|oauth_[a-f0-9]{64})\b"),
    token(TokensAndAuth, "Notion token", &["ntn_"], r"\bntn_\d{11}[A-Za-z0-9]{35}\b"),
    token(TokensAndAuth, "Shopify token", &["shpat_", "shpca_", "shppa_", "shpss_"], r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b"),
    token(TokensAndAuth, "Sentry token", &["sntrys_", "sntryu_"], r"\bsntry(?:s_eyJ[A-Za-z0-9+/=_-]{80,}|u_[a-f0-9]{64})"),
    token(TokensAndAuth, "New Relic key", &["NRAK-"], r"\bNRAK-[A-Z0-9]{27}\b"),
    token(TokensAndAuth, "Grafana token", &["glsa_"], r"\bglsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}\b"),
    token(TokensAndAuth, "Postman key", &["PMAK-"], r"\bPMAK-[a-f0-9]{24}-[a-f0-9]{34}\b"),
    token(TokensAndAuth, "Doppler token", &["dp.pt.", "dp.st."], r"\bdp\.(?:pt|st\.[a-z0-9_-]+)\.[A-Za-z0-9]{40,44}\b"),
    token(TokensAndAuth, "Supabase token", &["sbp_"], r"\bsbp_[a-f0-9]{40}\b"),
    token(TokensAndAuth, "Mailgun key", &["key-"], r"\bkey-[a-f0-9]{32}\b"),
    setting(TokensAndAuth, "package registry credential", &["_auth", "_password"], r#"(?im)(?:^|:)_(?:authToken|auth|password)\s*=\s*["']?([^\s"']{8,})"#, &[".npmrc"]),
    setting(TokensAndAuth, "package registry credential", &["npmauthtoken", "npmauthident"], r#"(?i)npmAuth(?:Token|Ident)\s*:\s*["']?([^\s"']{8,})"#, &[".yarnrc.yml"]),
    setting(TokensAndAuth, "package index credential", &["index-url"], r"(?i)index-url\s*=\s*https?://[^\s:/@]+:([^\s/@]{4,})@", &["pip.conf", "pip.ini", "requirements.txt"]),
    setting(TokensAndAuth, "server password", &["<password>", "cleartextpassword"], r#"(?i)(?:<password>|ClearTextPassword"\s+value=")\s*([^<>{}$\s"]{4,})"#, &["settings.xml", "nuget.config"]),
    setting(TokensAndAuth, "registry credential", &["\"auth\""], r#""auth"\s*:\s*"([A-Za-z0-9+/=]{16,})""#, &["config.json", "auth.json"]),
    setting(EnvironmentAndConfig, "Django secret key", &["SECRET_KEY"], r#"(?m)^\s*SECRET_KEY\s*=\s*["']([^"'\s]{50,})["']"#, &["production.py", "prod.py"]),
];

struct Scanner {
    keywords: AhoCorasick,
    /// Which rule a keyword of the automaton stands for.
    owners: Vec<usize>,
    patterns: Vec<Regex>,
}

#[expect(
    clippy::unwrap_used,
    reason = "the rules are constants and a test compiles them all"
)]
static SCANNER: LazyLock<Scanner> = LazyLock::new(|| {
    let owned = RULES
        .iter()
        .enumerate()
        .flat_map(|(owner, rule)| rule.keywords.iter().map(move |keyword| (owner, *keyword)));
    let (owners, keywords): (Vec<usize>, Vec<&str>) = owned.unzip();
    Scanner {
        keywords: AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(keywords)
            .unwrap(),
        owners,
        patterns: RULES
            .iter()
            .map(|rule| {
                RegexBuilder::new(rule.pattern)
                    .unicode(false)
                    .build()
                    .unwrap()
            })
            .collect(),
    }
});

/// The first secret that the text holds.
pub(super) fn judge(path: &str, text: &[u8]) -> Option<(Category, &'static str)> {
    let scanner = &*SCANNER;
    let path = path.to_lowercase();
    let mut possible = vec![false; RULES.len()];
    for found in scanner.keywords.find_overlapping_iter(text) {
        possible[scanner.owners[found.pattern().as_usize()]] = true;
    }
    RULES
        .iter()
        .zip(&scanner.patterns)
        .zip(possible)
        .filter(|((rule, _), possible)| *possible && concerns(rule, &path))
        .find(|((rule, pattern), _)| {
            pattern
                .captures_iter(text)
                .any(|found| passes(rule.check, &found))
        })
        .map(|((rule, _), _)| (rule.category, rule.what))
}

fn concerns(rule: &Rule, path: &str) -> bool {
    rule.files.is_empty() || rule.files.iter().any(|ending| path.ends_with(ending))
}

fn passes(check: Check, found: &Captures<'_>) -> bool {
    let group = |index| found.get(index).map_or(&b""[..], |group| group.as_bytes());
    match check {
        Check::Nothing => true,
        Check::Token => !is_filler(group(0)),
        Check::Password => !is_placeholder(group(1)),
        Check::DatabaseUrl => !is_placeholder(group(1)) && is_remote(group(2)),
    }
}

/// A token of a manual: it says so, or it hardly varies.
fn is_filler(token: &[u8]) -> bool {
    let lower = token.to_ascii_lowercase();
    let says_so = [
        &b"example"[..],
        b"xxxxxx",
        b"abcdefghijklmnop",
        b"placeholder",
        b"your_",
        b"your-",
        b"redacted",
        b"000000000000",
        b"123456789012345",
    ]
    .iter()
    .any(|word| lower.windows(word.len()).any(|window| window == *word));
    let mut seen = [false; 256];
    token
        .iter()
        .for_each(|byte| seen[usize::from(*byte)] = true);
    says_so || seen.iter().filter(|seen| **seen).count() < 9
}

/// A password that stands for one: a variable, a bracketed word, a well-known dummy.
fn is_placeholder(password: &[u8]) -> bool {
    let lower = password.to_ascii_lowercase();
    const DUMMIES: [&[u8]; 24] = [
        b"password",
        b"passwd",
        b"pass",
        b"secret",
        b"postgres",
        b"mysql",
        b"root",
        b"admin",
        b"test",
        b"tests",
        b"testing",
        b"user",
        b"guest",
        b"changeme",
        b"change_me",
        b"example",
        b"dummy",
        b"none",
        b"null",
        b"hunter2",
        b"mypassword",
        b"my_password",
        b"placeholder",
        b"development",
    ];
    let variable = lower.iter().any(|byte| b"${}<>%*[]".contains(byte));
    let dummy = DUMMIES.contains(&lower.as_slice());
    let varied = {
        let mut bytes = lower.clone();
        bytes.sort_unstable();
        bytes.dedup();
        bytes.len() > 2
    };
    variable
        || dummy
        || !varied
        || lower.windows(4).any(|word| word == b"your")
        || lower.windows(7).any(|word| word == b"example")
}

/// A host that others can reach; one without a dot is a neighbour in a compose file.
fn is_remote(host: &[u8]) -> bool {
    let host = host.to_ascii_lowercase();
    let local = [
        &b"localhost"[..],
        b".local",
        b".localhost",
        b".internal",
        b".test",
        b".example",
        b".invalid",
        b"example.com",
        b"example.org",
        b"example.net",
    ]
    .iter()
    .any(|ending| host.ends_with(ending));
    host.contains(&b'.') && !host.starts_with(b"127.") && !host.starts_with(b"0.") && !local
}
