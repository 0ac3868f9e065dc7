//! Job logs as GitHub serves them: secrets masked, workflow commands applied; and zip archives.

/// Masks secrets in a log. `::add-mask::` lines are removed and mask their value from then on. Between
/// `::stop-commands::T` and `::T::`, lines are plain text.
pub(crate) fn mask_secrets(raw: &str, secrets: &[String]) -> String {
    let mut masks: Vec<String> = secrets.iter().filter(|s| !s.is_empty()).cloned().collect();
    let mut stop_token: Option<String> = None;
    let mut out = String::with_capacity(raw.len());
    for line in raw.lines() {
        if let Some(token) = &stop_token {
            if line.trim() == format!("::{token}::") {
                stop_token = None;
                continue;
            }
        } else if let Some(value) = line.strip_prefix("::add-mask::") {
            let value = value
                .replace("%0A", "\n")
                .replace("%0D", "\r")
                .replace("%25", "%");
            masks.extend(value.lines().filter(|v| !v.is_empty()).map(str::to_owned));
            continue;
        } else if let Some(token) = line.strip_prefix("::stop-commands::") {
            stop_token = Some(token.trim().to_owned());
            continue;
        }
        let mut masked = line.to_owned();
        for mask in &masks {
            masked = masked.replace(mask.as_str(), "***");
        }
        out.push_str(&masked);
        out.push('\n');
    }
    out
}
