//! Logs as the host serves them: known secrets masked, workflow commands obeyed; and zip files.

/// Masks a raw log. `::add-mask::` hides its value from then on and is not shown itself; between
/// `::stop-commands::T` and `::T::` lines are only text.
pub(crate) fn mask_secrets(raw: &str, secrets: &[String]) -> String {
    let mut masks: Vec<String> = secrets.iter().filter(|s| !s.is_empty()).cloned().collect();
    let mut stopped: Option<String> = None;
    let mut out = String::with_capacity(raw.len());
    for line in raw.lines() {
        if let Some(token) = &stopped {
            if line.trim() == format!("::{token}::") {
                stopped = None;
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
            stopped = Some(token.trim().to_owned());
            continue;
        }
        let mut shown = line.to_owned();
        for mask in &masks {
            shown = shown.replace(mask.as_str(), "***");
        }
        out.push_str(&shown);
        out.push('\n');
    }
    out
}

/// A zip archive with its files stored as they are.
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
