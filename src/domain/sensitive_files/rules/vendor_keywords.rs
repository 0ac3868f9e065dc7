//! Rules for services whose keys have no unique format and are identified by the vendor's name.
//!
//! The names are services that developers commonly integrate with. A value matches if it looks random, the
//! vendor's name is near, and the name of the setting contains a word such as "token".

use super::{Rule, RuleKind, rule, vendor_keyword};
use crate::sensitive_files::SecretCategory::TokensAndAuth as Tokens;

macro_rules! services {
    ($($name:literal)*; $($word:literal)*) => {
        &[
            $(vendor_keyword(Tokens, concat!($name, " credential"), &[$name], &[]),)*
            $(rule(RuleKind::VendorPrefix, Tokens, concat!($word, " credential"), &[$word], &[]),)*
        ]
    };
}

/// Rules of this module in order of precedence.
#[rustfmt::skip]
pub(super) const RULES: &[Rule] = services![
    // AI.
    "openai" "anthropic" "cohere" "mistral" "deepseek" "deepgram" "assemblyai" "elevenlabs" "huggingface" "replicate" "groq" "cerebras" "perplexity" "openrouter" "langfuse" "langsmith" "langchain" "ollama" "gemini" "moonshot" "kimi" "zhipu" "minimax" "clarifai" "upstage" "wandb" "weightsandbiases" "tavily" "serpapi" "firecrawl" "greptile" "lighton" "privateai" "roboflow" "anyscale" "nvidia" "baseten" "friendli" "jina"
    // Source code, builds, packages, code quality.
    "circleci" "travis" "travisci" "buildkite" "bitrise" "codemagic" "appveyor" "droneci" "semaphore" "codecov" "coveralls" "codeclimate" "codacy" "sonar" "sonarcloud" "sonarqube" "snyk" "npm" "pypi" "nuget" "rubygems" "cratesio" "packagist" "sourcegraph" "gitter" "gitee" "launchdarkly" "configcat" "optimizely" "flagsmith" "statsig" "chromatic" "browserstack" "saucelabs" "lambdatest" "crowdin" "lokalise" "transifex" "postman" "readme" "sidekiq" "endorlabs" "sslmate" "fastlane" "appcenter" "testflight" "teamcity" "jenkins"
    // Observability.
    "newrelic" "new_relic" "honeycomb" "sentry" "rollbar" "bugsnag" "airbrake" "raygun" "loggly" "logdna" "logzio" "papertrail" "splunk" "sumologic" "dynatrace" "instana" "lightstep" "grafana" "pagerduty" "opsgenie" "victorops" "statuspage" "pingdom" "uptimerobot" "betterstack" "coralogix" "appdynamics" "checkly"
    // Email, telephony, chat, CRM.
    "slack" "telegram" "mattermost" "zulip" "rocketchat" "intercom" "zendesk" "freshdesk" "freshbooks" "helpscout" "mailchimp" "mandrill" "sendgrid" "sendinblue" "brevo" "mailjet" "mailersend" "postmark" "sparkpost" "resend" "customerio" "klaviyo" "iterable" "braze" "onesignal" "pusher" "pushover" "ably" "pubnub" "sendbird" "twitch" "zoom" "webex" "ringcentral" "vonage" "nexmo" "plivo" "telnyx" "messagebird" "bandwidth" "sinch" "clicksend" "infobip" "aircall" "dialpad" "wechat" "weixin" "dingtalk" "feishu" "lark" "kakao" "viber" "whatsapp" "activecampaign" "convertkit" "typeform" "surveymonkey" "jotform" "calendly" "hubspot" "salesforce" "pipedrive" "zoho"
    // Payments, finance, commerce.
    "stripe" "paypal" "braintree" "adyen" "squareup" "mollie" "klarna" "razorpay" "paystack" "flutterwave" "gocardless" "plaid" "finicity" "yodlee" "truelayer" "revolut" "quickbooks" "xero" "chargebee" "recurly" "paddle" "lemonsqueezy" "gumroad" "shopify" "bigcommerce" "woocommerce" "magento" "etsy" "ebay" "shippo" "easypost" "midtrans" "xendit" "omise" "coinbase" "binance" "kraken" "kucoin" "bittrex" "bitfinex" "bitmex" "bybit" "okx" "huobi" "finnhub" "alphavantage" "iexcloud" "tiingo" "quandl" "databento" "infura" "etherscan" "moralis" "quicknode" "polymarket" "rainforest" "highnote"
    // Identity and security.
    "okta" "auth0" "clerk" "workos" "onelogin" "jumpcloud" "keycloak" "fusionauth" "stytch" "supertokens" "descope" "frontegg" "bitwarden" "lastpass" "doppler" "infisical" "akeyless" "hashicorp" "recaptcha" "hcaptcha" "turnstile" "onfido" "jumio" "virustotal" "shodan" "censys" "securitytrails" "abuseipdb" "haveibeenpwned" "maxmind" "ipinfo" "ipstack" "meraki" "fortinet" "crowdstrike" "tenable" "qualys"
    // Storage, media, maps, content, analytics.
    "cloudinary" "imgix" "imagekit" "uploadcare" "vimeo" "youtube" "spotify" "soundcloud" "deezer" "flickr" "unsplash" "pexels" "giphy" "pinterest" "instagram" "facebook" "linkedin" "linked_in" "twitter" "tiktok" "snapchat" "reddit" "disqus" "tumblr" "wordpress" "contentful" "sanity" "storyblok" "prismic" "strapi" "webflow" "squarespace" "mapbox" "tomtom" "opencage" "positionstack" "openweather" "weatherstack" "weatherapi" "weatherbit" "accuweather" "yelp" "foursquare" "tripadvisor" "amadeus" "skyscanner" "nytimes" "newsapi" "omdb" "tmdb" "rapidapi" "adafruit" "blynk" "dropbox" "onedrive" "egnyte" "backblaze" "wasabi" "filestack" "transloadit" "algolia" "bitly" "rebrandly" "adobe" "figma" "canva" "airtable" "asana" "clickup" "todoist" "evernote" "smartsheet" "wrike" "basecamp" "toggl" "clockify" "wakatime" "amplitude" "mixpanel" "posthog" "fullstory" "hotjar" "logrocket" "apify" "scraperapi" "scrapingbee" "brightdata" "zyte" "diffbot" "kagi" "fastly" "bunny" "keycdn" "stackpath" "gandi" "namecheap" "godaddy" "dnsimple" "dnsmadeeasy" "ns1_" "porkbun" "infomaniak" "exoscale" "ionos" "contabo" "kinsta" "wpengine" "pantheon" "platformsh" "cloud66" "beanstalk" "freemius" "samsara" "duffel" "strava" "fitbit" "garmin" "smartthings" "docusign" "hellosign" "pandadoc" "workday" "bamboohr" "personio" "servicenow" "zapier" "ifttt" "pipedream" "workato" "celigo" "mulesoft" "snaplogic" "boomi";
    // Names that are also common words match only within the name of the setting.
    "stability" "together" "voyage" "fireworks" "runway" "comet" "exa_api" "cursor" "drone" "nexus" "split_io" "unleash" "percy" "phrase_" "wiz" "expo_" "eas_" "apple" "harness" "octopus" "ansible" "puppet" "chef_" "nomad" "consul" "drift" "crisp" "front_" "stream_" "line_channel" "notify" "square" "checkout" "wise_" "mercury" "ramp_" "brex" "lob_" "alpaca" "polygon" "alchemy" "duo_" "mux_" "tenor" "medium_" "ghost_" "wix_" "here_api" "guardian_api" "particle_" "box_" "miro_" "notion" "monday_" "linear" "harvest" "segment" "heap_" "brave" "tesla" "nest_" "gusto" "greenhouse" "lever_" "tray_"
];
