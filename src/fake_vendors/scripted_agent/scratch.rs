//! Scratch folder of a run, as the agent uses it: attachments of the ticket, and questions to people.

use std::io;
use std::path::Path;

use super::project_settings::ScriptEnv;

/// Variable that names the folder.
const VARIABLE: &str = "AGENT_IMPLEMENT_SCRATCH";

/// Number of bytes in a description.
const MAX_SHOWN: usize = 8;

/// First bytes of files, with their media types.
const SIGNATURES: [(&[u8], &str); 5] = [
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
    (b"%PDF", "application/pdf"),
];

/// Returns the path of the file with questions.
pub(super) fn question_file(env: &ScriptEnv) -> io::Result<String> {
    let folder = env.get(VARIABLE).ok_or_else(|| {
        io::Error::other(format!(
            "{VARIABLE} is not set, so no question can be asked"
        ))
    })?;
    Ok(format!("{folder}/question.json"))
}

/// Returns the paths of attachments in a prompt, in order.
pub(super) fn attachments(env: &ScriptEnv, prompt: &str) -> Vec<String> {
    let Some(folder) = env.get(VARIABLE) else {
        return Vec::new();
    };
    let prefix = format!("{folder}/attachments/");
    let parts = prompt.match_indices(&prefix);
    let mut paths: Vec<String> = parts
        .map(|(at, _)| {
            let path = &prompt[at..];
            let end = path.find(|c: char| c == '`' || c.is_whitespace());
            path[..end.unwrap_or(path.len())].to_owned()
        })
        .collect();
    paths.dedup();
    paths
}

/// Describes a file: name, size, media type, and the first bytes in hexadecimal.
pub(super) fn describe(file: &Path) -> io::Result<String> {
    let content = std::fs::read(file)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let known = SIGNATURES
        .iter()
        .find(|(start, _)| content.starts_with(start));
    let media_type = known.map_or("text/plain", |(_, media_type)| media_type);
    let shown = &content[..content.len().min(MAX_SHOWN)];
    let shown: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!(
        "{name}: {} bytes, {media_type}, {shown}\n",
        content.len()
    ))
}
