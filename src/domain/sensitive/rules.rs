//! The shapes of secrets, as their vendors publish them.
//!
//! A rule is found by a keyword and decided by its expression. Rules stand in the order in which
//! reasons are given: of several secrets in one file the first rule's is named.

use super::Category::{
    self, Cloud, Database, EnvironmentAndConfig, KeysAndCertificates, TokensAndAuth,
};

/// One secret's shape.
pub(super) struct Rule {
    /// What a person reads: never the secret.
    pub what: &'static str,
    pub category: Category,
    /// The cheap test: one of these stands in the text.
    pub keywords: &'static [&'static str],
    /// The whole shape. Group 1, where there is one, is the secret itself.
    pub pattern: &'static str,
    /// Only files whose path ends so are judged; empty means all.
    pub files: &'static [&'static str],
    pub kind: Kind,
}

/// How far a rule can be trusted, and what a match must pass beside its expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Key material. No allow list permits it.
    PrivateKey,
    /// A format of its own, found wherever it stands.
    Format,
    /// Only digits and letters; the words around it say what it is. The secret varies as a random
    /// one does.
    Named,
    /// The same, of capital and small letters: a hash is none.
    Mixed,
    /// A signed token, which may be a sample.
    Jwt,
    /// The value of a setting: no placeholder.
    Setting,
    /// A password in a URL, group 1, for a host out in the world, group 2.
    Url,
    /// The same of web addresses, where passwords are made up more often: no plain word either.
    WebUrl,
    /// Something random under a telling name. A warning, nothing more.
    Random,
}

impl Rule {
    /// Letters of keywords count in either case where people choose how to write them.
    pub fn keywords_in_any_case(&self) -> bool {
        !matches!(self.kind, Kind::PrivateKey | Kind::Format | Kind::Jwt)
    }

    /// How many bytes before and after a keyword the expression looks at.
    pub fn reach(&self) -> (usize, usize) {
        match self.kind {
            Kind::PrivateKey => (32, 6000),
            Kind::Format => (128, 640),
            Kind::Jwt => (128, 4096),
            Kind::Named | Kind::Mixed | Kind::Setting => (256, 320),
            Kind::Url | Kind::WebUrl => (64, 512),
            Kind::Random => (0, 192),
        }
    }
}

const fn format(
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
        kind: Kind::Format,
    }
}

const fn named(
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
        kind: Kind::Named,
    }
}

const fn mixed(
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
        kind: Kind::Mixed,
    }
}

const fn url(
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
        kind: Kind::Url,
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
        kind: Kind::Setting,
    }
}

/// Between the name of a setting and its value, in whatever language: quotes and brackets, a type,
/// and what stands for "is".
macro_rules! is {
    () => {
        r#"\\?["'`\]\)]{0,2}(?:\s{0,2}:\s{0,2}&?[A-Za-z' ]{1,20}?|\s[Ss]tring)?\s{0,24}(?::=|=>|[:=,| ]|value["']?[=:])\s{0,4}\\?["'`(]{0,2}"#
    };
}

#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    // Of a service account's file the cloud is the news, not the key in it.
    format(Cloud, "Google service account key", &["private_key_id"], r#"\\?"private_key_id\\?"\s*:\s*\\?"([a-f0-9]{40})\\?""#),
    Rule { what: "private key", category: KeysAndCertificates, keywords: &["PRIVATE KEY"], files: &[], kind: Kind::PrivateKey,
        // Key material must follow: code that parses keys holds the bare header.
        pattern: r#"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\\r|\\n|[\s"'+,;\\>|*#.()]|//|(?:Proc-Type|DEK-Info|Version|Comment|Hash)[^\n\\]*(?:\n|\\n|\\r\\n))*([A-Za-z0-9+/=]{32}[A-Za-z0-9+/=\s\\"',]*)"# },
    Rule { what: "PuTTY private key", category: KeysAndCertificates, keywords: &["PuTTY-User-Key-File"], files: &[], kind: Kind::PrivateKey,
        pattern: r"PuTTY-User-Key-File-[23]: \S+" },
    Rule { what: "age secret key", category: KeysAndCertificates, keywords: &["AGE-SECRET-KEY-1"], files: &[], kind: Kind::PrivateKey,
        pattern: r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}" },

    format(Cloud, "AWS access key", &["AKIA", "ASIA", "ABIA", "ACCA"], r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    mixed(Cloud, "AWS secret key", &["aws"], concat!(r"(?i)aws[^\n]{0,20}(?:secret|key)[a-z_.-]{0,16}", is!(), r"([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)")),
    mixed(Cloud, "AWS secret key", &["secret"], concat!(r"(?i)secret[_-]?access[_-]?key", is!(), r"([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)")),
    format(Cloud, "Amazon Bedrock key", &["ABSK"], r"ABSK[A-Za-z0-9+/]{109,269}={0,2}"),
    format(Cloud, "Google API key", &["AIza"], r"AIza[0-9A-Za-z_-]{35}"),
    format(Cloud, "Google OAuth client secret", &["GOCSPX-"], r"GOCSPX-[A-Za-z0-9_-]{28}"),
    format(Cloud, "Google OAuth access token", &["ya29."], r"ya29\.[A-Za-z0-9_-]{100,400}"),
    format(Cloud, "Azure storage account key", &["AccountKey="], r"AccountKey=([A-Za-z0-9+/]{86}==)"),
    format(Cloud, "Azure shared access key", &["SharedAccessKey="], r"SharedAccessKey=([A-Za-z0-9+/]{43}=)"),
    format(Cloud, "Azure shared access signature", &["sig="], r"[?&]s[a-z]=[A-Za-z0-9%:.&=_+-]{8,400}&sig=([A-Za-z0-9%/+]{43,60}(?:%3[Dd]|=))"),
    format(Cloud, "Azure client secret", &["Q~"], r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    format(Cloud, "Azure DevOps token", &["AZDO"], r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}"),
    format(Cloud, "DigitalOcean token", &["dop_v1_", "doo_v1_", "dor_v1_"], r"do[opr]_v1_[a-f0-9]{64}"),
    format(Cloud, "Fly.io token", &["fm1_", "fm2_", "fm1r_", "fm1a_", "fo1_"], r"(?:fm[12][ar]?_[A-Za-z0-9+/=_-]{80,500}|fo1_[A-Za-z0-9_-]{43})"),
    format(Cloud, "Heroku token", &["HRKU-"], r"HRKU-(?:AA[0-9A-Za-z_-]{58}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"),
    named(Cloud, "Heroku token", &["heroku"], concat!(r"(?i)heroku[a-z0-9_.-]{0,20}key", is!(), r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")),
    format(Cloud, "Alibaba Cloud access key", &["LTAI"], r"LTAI5t[A-Za-z0-9]{18}"),
    format(Cloud, "Terraform Cloud token", &[".atlasv1."], r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}"),
    format(Cloud, "Vault token", &["hvs.", "hvb.", "hvr."], r"hv[sbr]\.[A-Za-z0-9_-]{24,300}"),
    format(Cloud, "Pulumi token", &["pul-"], r"pul-[a-f0-9]{40}"),
    format(Cloud, "Databricks token", &["dapi"], r"dapi[a-f0-9]{32}(?:-\d)?"),
    format(Cloud, "Cloudflare origin key", &["v1.0-"], r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}"),
    format(Cloud, "Cloudflare token", &["cfut_", "cfat_", "cfk_"], r"cf(?:ut|at|k)_[A-Za-z0-9_-]{40,60}"),
    named(Cloud, "Cloudflare token", &["cloudflare", "cf_api"], concat!(r"(?i)(?:cloudflare|cf_api)[a-z0-9_.-]{0,20}(?:token|key)", is!(), r"([A-Za-z0-9_-]{40}|[a-f0-9]{37})(?:[^A-Za-z0-9_-]|$)")),
    format(Cloud, "Vercel token", &["vcp_", "vci_", "vca_", "vcr_", "vck_"], r"vc[piark]_[A-Za-z0-9]{56,60}"),
    mixed(Cloud, "Vercel token", &["vercel"], concat!(r"(?i)vercel[a-z0-9_.-]{0,20}token", is!(), r"([A-Za-z0-9]{24})(?:[^A-Za-z0-9_-]|$)")),
    format(Cloud, "Netlify token", &["nfp_", "nfc_", "nfo_"], r"nf[pco]_[A-Za-z0-9_-]{36}"),
    format(Cloud, "Tailscale key", &["tskey-"], r"tskey-(?:auth|api|client)-[A-Za-z0-9]{8,20}(?:CNTRL)?-[A-Za-z0-9]{20,48}"),
    named(Cloud, "Datadog key", &["datadog", "dd_a"], concat!(r"(?i)(?:datadog|dd)[_.-]?(?:api|app(?:lication)?)[_.-]?key", is!(), r"([a-f0-9]{40}|[a-f0-9]{32})\b")),

    url(Database, "database URL with password", &["postgres", "mysql", "mariadb", "mongodb", "redis", "amqp", "mssql", "sqlserver", "cockroachdb", "clickhouse"],
        r"(?i)(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?|mssql|sqlserver|cockroachdb|clickhouse)(?:\+[a-z0-9]+)?://[^\s:/@]{0,100}:([^\s/@]{4,200})@([A-Za-z0-9._-]+)"),
    setting(Database, "connection string with password", &["password=", "pwd="], r#"(?i)(?:server|data source|host)=[^;"']{3,200};[^"']{0,200}?(?:password|pwd)=([^;"'\s]{4,})"#, &[".json", ".config", ".xml", ".yml", ".yaml", ".properties", ".cscfg"]),
    setting(Database, "database password", &["password"], r#"(?im)^\s*password\s*:\s*["']?([^\s"'#]{4,})"#, &["database.yml", "database.yaml"]),
    setting(Database, "database password", &["DB_PASSWORD"], r#"(?i)define\(\s*['"]DB_PASSWORD['"]\s*,\s*['"]([^'"]{4,})['"]"#, &["wp-config.php"]),
    format(Database, "PlanetScale credential", &["pscale_"], r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,64}"),
    format(Database, "Supabase key", &["sbp_", "sb_secret_"], r"(?:sbp_[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{31,48})"),

    format(TokensAndAuth, "GitHub token", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], r"gh(?:[pousr]_[A-Za-z0-9]{36,251}|s_[0-9]{1,12}_eyJ[A-Za-z0-9_.-]{80,700})"),
    format(TokensAndAuth, "GitHub token", &["github_pat_"], r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    format(TokensAndAuth, "GitLab token", &["glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "gloas-", "glsoat-", "glft-", "glimt-", "glagent-"], r"gl(?:pat|ptt|dt|rt|cbt|oas|soat|ft|imt|agent)-[A-Za-z0-9_.-]{20,300}"),
    format(TokensAndAuth, "Bitbucket or Atlassian token", &["ATATT3", "ATCTT3", "ATBB"], r"(?:AT[AC]TT3[A-Za-z0-9_=-]{180,250}|ATBB[A-Za-z0-9]{32})"),
    format(TokensAndAuth, "Slack token", &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe"], r"xox(?:[abprso]|e(?:\.xox[bp])?)-(?:\d{1,14}-){1,3}[0-9A-Za-z]{24,200}"),
    format(TokensAndAuth, "Slack app token", &["xapp-"], r"xapp-\d-[A-Z0-9]{1,20}-\d{1,20}-[a-f0-9]{32,128}"),
    format(TokensAndAuth, "Slack webhook", &["hooks.slack.com"], r"hooks\.slack\.com/(?:services|workflows|triggers)/[TE][A-Z0-9]{8,14}/[AB]?[A-Z0-9]{8,20}/[A-Za-z0-9/]{20,80}"),
    format(TokensAndAuth, "Teams webhook", &[".webhook.office.com"], r"[a-z0-9-]{1,60}\.webhook\.office\.com/webhookb2/[a-f0-9-]{36}@[a-f0-9-]{36}/IncomingWebhook/[a-f0-9]{32}/[a-f0-9-]{36}"),
    format(TokensAndAuth, "Discord webhook", &["/api/webhooks/"], r"discord(?:app)?\.com/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,80}"),
    mixed(TokensAndAuth, "Discord bot token", &["discord", "bot "], concat!(r"(?:(?i:discord)[A-Za-z0-9_.-]{0,20}", is!(), r"|\bBot )([MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38})(?:[^A-Za-z0-9_.-]|$)")),
    format(TokensAndAuth, "Telegram bot token", &[":AA", "%3AAA"], r"\d{8,10}(?::|%3A)AA[A-Za-z0-9_-]{33}"),
    format(TokensAndAuth, "Stripe live key", &["sk_live_", "rk_live_"], r"[sr]k_live_[0-9A-Za-z]{24,200}"),
    format(TokensAndAuth, "webhook signing secret", &["whsec_"], r"whsec_[A-Za-z0-9+/]{32,80}={0,2}"),
    format(TokensAndAuth, "Anthropic key", &["sk-ant-"], r"sk-ant-[a-z]{3,8}\d{2}-[A-Za-z0-9_-]{80,200}"),
    format(TokensAndAuth, "OpenAI key", &["sk-proj-", "sk-svcacct-", "sk-admin-", "T3BlbkFJ"], r"sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,250}|[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})"),
    format(TokensAndAuth, "OpenRouter key", &["sk-or-v1-"], r"sk-or-v1-[a-f0-9]{64}"),
    format(TokensAndAuth, "Groq key", &["gsk_"], r"gsk_[A-Za-z0-9]{52}"),
    format(TokensAndAuth, "xAI key", &["xai-"], r"xai-[A-Za-z0-9]{80}"),
    format(TokensAndAuth, "Perplexity key", &["pplx-"], r"pplx-[A-Za-z0-9]{48}"),
    format(TokensAndAuth, "Replicate token", &["r8_"], r"r8_[A-Za-z0-9]{37}"),
    format(TokensAndAuth, "Hugging Face token", &["hf_"], r"hf_[A-Za-z0-9]{34}"),
    format(TokensAndAuth, "npm token", &["npm_"], r"npm_[A-Za-z0-9]{36}"),
    format(TokensAndAuth, "PyPI token", &["pypi-AgEIcHlwaS5vcmc", "pypi-AgENdGVzdC5weXBpLm9yZw"], r"pypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBpLm9yZw)[A-Za-z0-9_-]{50,500}"),
    format(TokensAndAuth, "RubyGems token", &["rubygems_"], r"rubygems_[a-f0-9]{48}"),
    format(TokensAndAuth, "crates.io token", &["cio"], r"cio[A-Za-z0-9]{32}"),
    format(TokensAndAuth, "NuGet key", &["oy2"], r"oy2[a-z0-9]{43}"),
    format(TokensAndAuth, "Docker Hub token", &["dckr_pat_", "dckr_oat_"], r"dckr_[po]at_[A-Za-z0-9_-]{27,80}"),
    format(TokensAndAuth, "SendGrid key", &["SG."], r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    format(TokensAndAuth, "Brevo key", &["xkeysib-"], r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    named(TokensAndAuth, "Mailgun key", &["mailgun"], concat!(r"(?i)mailgun[a-z0-9_.-]{0,30}", is!(), r"((?:key-)?[a-f0-9]{32}(?:-[a-f0-9]{8}-[a-f0-9]{8})?)\b")),
    named(TokensAndAuth, "Twilio secret", &["twilio"], concat!(r"(?i)twilio[a-z0-9_.-]{0,20}(?:token|secret|key)[a-z0-9_.-]{0,8}", is!(), r"((?:SK)?[a-f0-9]{32})\b")),
    format(TokensAndAuth, "Linear token", &["lin_api_", "lin_oauth_", "lin_wh_"], r"lin_(?:api_[A-Za-z0-9]{40}|oauth_[a-f0-9]{64}|wh_[A-Za-z0-9]{40})"),
    format(TokensAndAuth, "Notion token", &["ntn_"], r"ntn_\d{11}[A-Za-z0-9]{35}"),
    format(TokensAndAuth, "Shopify token", &["shpat_", "shpca_", "shppa_", "shpss_"], r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    format(TokensAndAuth, "Square token", &["sq0csp-", "sq0atp-"], r"sq0(?:csp-[A-Za-z0-9_-]{43}|atp-[A-Za-z0-9_-]{22})"),
    mixed(TokensAndAuth, "Square token", &["square"], concat!(r"(?i:square)[A-Za-z0-9_.-]{0,20}", is!(), r"(EAAA[A-Za-z0-9_-]{60})(?:[^A-Za-z0-9_/+-]|$)")),
    format(TokensAndAuth, "Sentry token", &["sntrys_", "sntryu_"], r"sntry(?:s_eyJ[A-Za-z0-9+/=_-]{80,500}|u_[a-f0-9]{64})"),
    format(TokensAndAuth, "New Relic key", &["NRAK-"], r"NRAK-[A-Z0-9]{27}"),
    format(TokensAndAuth, "New Relic license key", &["NRAL"], r"[a-f0-9]{36}NRAL"),
    format(TokensAndAuth, "Grafana token", &["glsa_"], r"glsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}"),
    format(TokensAndAuth, "Grafana token", &["glc_eyJ"], r"glc_eyJ[A-Za-z0-9+/=]{60,400}"),
    format(TokensAndAuth, "Sonar token", &["sqp_", "squ_", "sqa_"], r"sq[pua]_[a-f0-9]{40}"),
    format(TokensAndAuth, "Buildkite token", &["bkua_"], r"bkua_[a-f0-9]{40}"),
    format(TokensAndAuth, "Contentful token", &["CFPAT-"], r"CFPAT-[A-Za-z0-9_-]{43}"),
    format(TokensAndAuth, "Dynatrace token", &["dt0c01."], r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    format(TokensAndAuth, "Figma token", &["figd_"], r"figd_[A-Za-z0-9_-]{40,60}"),
    format(TokensAndAuth, "HubSpot token", &["pat-na1-", "pat-na2-", "pat-eu1-"], r"pat-(?:na[12]|eu1)-[a-f0-9]{8}-(?:[a-f0-9]{4}-){3}[a-f0-9]{12}"),
    format(TokensAndAuth, "1Password service account token", &["ops_eyJ"], r"ops_eyJ[A-Za-z0-9+/=_-]{200,500}"),
    format(TokensAndAuth, "Postman key", &["PMAK-"], r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    format(TokensAndAuth, "Doppler token", &["dp.pt.", "dp.st."], r"dp\.(?:pt|st\.[a-z0-9_-]{1,60})\.[A-Za-z0-9]{40,44}"),
    Rule { what: "signed token", category: TokensAndAuth, keywords: &["eyJ"], files: &[], kind: Kind::Jwt,
        pattern: r#"(?i:bearer|authorization|jwt|token|secret|api[_-]?key|service[_-]?role|password)(?:[^\n]{0,40}?[^A-Za-z0-9_.-]|[A-Za-z_]{0,20}\s{1,24}value:\s?["']?)(eyJ[A-Za-z0-9_-]{10,1000}\.eyJ[A-Za-z0-9_-]{10,3000}\.[A-Za-z0-9_-]{40,700})"# },
    Rule { what: "URL with password", category: TokensAndAuth, files: &[], kind: Kind::WebUrl, keywords: &["http://", "https://", "ftp://", "ftps://", "sftp://", "smtp://", "smtps://"],
        pattern: r"(?i)(?:https?|s?ftps?|smtps?)://[A-Za-z0-9_.%+-]{1,100}:([^\s/@:?#]{6,200})@([A-Za-z0-9._-]+)" },
    setting(TokensAndAuth, "login with password", &["machine "], r"(?m)^\s*machine[ \t]+\S{3,200}\s+login[ \t]+\S{1,200}\s+password[ \t]+(\S{4,200})", &[]),
    setting(TokensAndAuth, "package registry credential", &["_auth", "_password"], r#"(?im)(?:^|:)_(?:authToken|auth|password)\s*=\s*["']?([^\s"']{8,})"#, &[".npmrc"]),
    setting(TokensAndAuth, "package registry credential", &["npmauthtoken", "npmauthident"], r#"(?i)npmAuth(?:Token|Ident)\s*:\s*["']?([^\s"']{8,})"#, &[".yarnrc.yml"]),
    setting(TokensAndAuth, "server password", &["<password>", "cleartextpassword"], r#"(?i)(?:<password>|ClearTextPassword"\s+value=")\s*([^<>{}$\s"]{4,})"#, &["settings.xml", "nuget.config"]),
    setting(TokensAndAuth, "registry credential", &["\"auth\""], r#""auth"\s*:\s*"([A-Za-z0-9+/=]{16,})""#, &["config.json", "auth.json"]),
    setting(TokensAndAuth, "stored login", &["_token\"", "\"password\"", "bearer\""], r#"(?i)"(?:access_token|refresh_token|id_token|password|bearer)"\s*:\s*"([^"\s]{12,})""#, &["auth.json", "token.json", "tokens.json", "hosts.json"]),
    setting(EnvironmentAndConfig, "Django secret key", &["SECRET_KEY"], r#"(?m)^\s*SECRET_KEY\s*=\s*["']([^"'\s]{50,})["']"#, &["production.py", "prod.py"]),

    Rule { what: "possible secret", category: TokensAndAuth, files: &[], kind: Kind::Random,
        keywords: &["secret", "token", "password", "passwd", "api_key", "api-key", "apikey", "access_key", "access-key", "accesskey", "credential"],
        pattern: concat!(r"(?i)(?:secret|token|passw(?:or)?d|api[_-]?key|access[_-]?key|credential)s?(?:[_-]?(?:key|value|id))?", r#"["'\]]{0,2}\s{0,4}(?::=|=>|[:=])\s{0,4}["']"#, r#"([^\s"'\\]{16,128})["']"#) },
];
