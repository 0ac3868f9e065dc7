//! Texts written by outsiders: ordinary ones, and ones that attack the panel.

/// Texts written by outsiders.
pub struct UntrustedText {
    pub title: Box<dyn Fn(usize) -> String>,
    /// Name of a machine, a file or a step.
    pub name: &'static str,
    /// URL prefix of an issue, before its key.
    pub key_prefix: &'static str,
    pub log: String,
}

/// Ordinary ticket titles.
const TITLES: [&str; 12] = [
    "Let customers reorder a past purchase",
    "Round prices the same way in cart and invoice",
    "Show delivery dates in the customer's time zone",
    "Stop sending two confirmation mails",
    "Export orders as CSV",
    "Remember the chosen currency",
    "Make search forgiving of typos",
    "Rotate the signing keys without downtime",
    "Explain why a coupon was refused",
    "Load product pictures lazily",
    "Keep the cart when somebody signs in",
    "Warn before stock runs out",
];

impl UntrustedText {
    pub fn plain() -> Self {
        Self {
            title: Box::new(|n| TITLES[n % TITLES.len()].to_owned()),
            name: "agent-01m7zf5d",
            key_prefix: "https://linear.test/",
            log: "$ cargo test\nrunning 42 tests\ntest cart::keeps_items ... ok\n".to_owned(),
        }
    }

    /// Texts that attack a page which treats them as more than text.
    pub fn hostile() -> Self {
        Self {
            title: Box::new(|n| match n % 6 {
                0 => "<script>window.hacked=1</script>".to_owned(),
                1 => "\"'><img src=x onerror=\"window.hacked=1\">".to_owned(),
                2 => "abc \u{202e}gnp.exe\u{2066} \u{200b}x".to_owned(),
                3 => "A".repeat(10 << 10),
                4 => "👩‍👩‍👧‍👦🏳️‍🌈 𝕳𝖊𝖑𝖑𝖔 \u{0301}\u{0301}\u{0301}\u{0301}Z̷͙̈́a̴̢̎l̸̫̈́g̶̱̈́o̸͍͐".to_owned(),
                _ => "${alert(1)} {{7*7}} </title><style>*{display:none}</style>".to_owned(),
            }),
            key_prefix: "javascript:hacked=1//",
            name: "<b onclick=\"hacked=1\">m</b>\u{202e}'\"&amp;",
            log: format!(
                "<script>window.hacked=1</script>\u{1b}[31mred\u{1b}[0m\n{}\n👾 \u{202e}",
                "B".repeat(10 << 10)
            ),
        }
    }
}
