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

/// Returns a zip archive with uncompressed files.
pub(crate) fn zip_archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, data) in files {
        let offset = out.len() as u32;
        let crc = crc32(data);
        let mut shared = Vec::new();
        // Version 2.0, UTF-8 names, stored, no time, 1980-01-01.
        for field in [20u16, 0x0800, 0, 0, 0x21] {
            shared.extend(field.to_le_bytes());
        }
        for field in [crc, data.len() as u32, data.len() as u32] {
            shared.extend(field.to_le_bytes());
        }
        shared.extend((name.len() as u16).to_le_bytes());
        shared.extend(0u16.to_le_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&shared);
        out.extend(name.as_bytes());
        out.extend(data);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&shared);
        directory.extend([0u8; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    for _ in 0..2 {
        out.extend((files.len() as u16).to_le_bytes());
    }
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out
}

fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let low = crc & 1;
            crc = (crc >> 1) ^ (0xedb8_8320 & (!low).wrapping_add(1));
        }
        crc
    })
}
