//! Image build of the fake Docker engine: reads the build context and the Dockerfile, executes nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::string_map;
use crate::http::HttpRequest;

/// Image that was built, with what its Dockerfile copied.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    /// Name and tag.
    pub tag: String,
    /// Base image.
    pub base: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Text of the Dockerfile.
    pub dockerfile: String,
    /// Copied files by name in the build context, with their mode.
    pub files: BTreeMap<String, (u32, Bytes)>,
}

/// File of a tar archive.
struct ContextFile {
    name: String,
    mode: u32,
    content: Bytes,
}

/// Builds an image and returns the engine's output, and the image unless a step failed.
///
/// # Errors
/// Status and message for a request that is no build.
pub(super) fn build(
    request: &HttpRequest,
    is_known: impl Fn(&str) -> bool,
    failing: Option<&(String, String)>,
) -> Result<(String, Option<BuiltImage>), (u16, String)> {
    let refused = |status, message: &str| (status, message.to_owned());
    let context =
        read_tar(&request.body).ok_or_else(|| refused(500, "archive/tar: invalid tar header"))?;
    let dockerfile = context.iter().find(|file| file.name == "Dockerfile");
    let dockerfile =
        dockerfile.ok_or_else(|| refused(500, "Cannot locate specified Dockerfile: Dockerfile"))?;
    let dockerfile = String::from_utf8_lossy(&dockerfile.content).into_owned();
    let arguments = request.query_param("buildargs").unwrap_or_default();
    let arguments: Value = serde_json::from_slice(arguments.as_bytes()).unwrap_or_default();
    let given = string_map(&arguments);
    let (mut variables, mut output) = (BTreeMap::new(), String::new());
    let mut image = BuiltImage {
        tag: request.query_param("t").unwrap_or_default(),
        base: String::new(),
        labels: BTreeMap::new(),
        dockerfile: dockerfile.clone(),
        files: BTreeMap::new(),
    };
    let instructions = instructions(&dockerfile);
    for (at, instruction) in instructions.iter().enumerate() {
        let step = format!("Step {}/{} : {instruction}", at + 1, instructions.len());
        for stream in [step.as_str(), "\n"] {
            output += &event(&json!({ "stream": stream }));
        }
        if let Some((start, text)) = failing.filter(|(start, _)| instruction.starts_with(start)) {
            output += &event(&json!({ "stream": text }));
            let error = format!("The command '/bin/sh -c {start}' returned a non-zero code: 1");
            return Ok((output + &error_event(&error), None));
        }
        let (name, rest) = instruction.split_once(' ').unwrap_or((instruction, ""));
        let failure = match name {
            "ARG" => {
                let (name, default) = rest.split_once('=').unwrap_or((rest, ""));
                let value = given.get(name).map_or(default, String::as_str);
                variables.insert(name.to_owned(), value.to_owned());
                None
            }
            "FROM" => {
                image.base = expand(rest, &variables);
                let denied = || {
                    format!(
                        "pull access denied for {}, repository does not exist",
                        image.base
                    )
                };
                (!is_known(&image.base)).then(denied)
            }
            "COPY" => {
                let source = rest.split(' ').next().unwrap_or_default();
                match context.iter().find(|file| file.name == source) {
                    Some(file) => {
                        let copied = (file.mode, file.content.clone());
                        image.files.insert(source.to_owned(), copied);
                        None
                    }
                    None => Some(format!(
                        "COPY failed: file not found in build context: stat {source}: file does not exist"
                    )),
                }
            }
            "LABEL" => {
                let pairs = rest
                    .split_whitespace()
                    .filter_map(|pair| pair.split_once('='));
                let labels = pairs.map(|(name, value)| {
                    (name.to_owned(), expand(value.trim_matches('"'), &variables))
                });
                image.labels.extend(labels);
                None
            }
            _ => None,
        };
        if let Some(failure) = failure {
            return Ok((output + &error_event(&failure), None));
        }
    }
    output += &event(&json!({"aux": {"ID": "sha256:0"}}));
    output += &event(&json!({"stream": format!("Successfully tagged {}\n", image.tag)}));
    Ok((output, Some(image)))
}

fn event(event: &Value) -> String {
    format!("{event}\r\n")
}

fn error_event(error: &str) -> String {
    event(&json!({"errorDetail": {"message": error}, "error": error}))
}

/// Returns the instructions of a Dockerfile, each on one line.
fn instructions(dockerfile: &str) -> Vec<String> {
    let lines = dockerfile.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let joined: String = lines.map(|line| format!("{line}\n")).collect();
    let joined = joined.replace("\\\n", "");
    joined.lines().map(str::to_owned).collect()
}

/// Replaces `${NAME}`.
fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    for (name, value) in variables {
        text = text.replace(&format!("${{{name}}}"), value);
    }
    text
}

/// Reads a tar archive of regular files. `None` if it is damaged or incomplete.
fn read_tar(archive: &Bytes) -> Option<Vec<ContextFile>> {
    const BLOCK: usize = 512;
    let (mut files, mut at) = (Vec::new(), 0);
    loop {
        let header = archive.get(at..at + BLOCK)?;
        if header.iter().all(|byte| *byte == 0) {
            let end = archive.get(at + BLOCK..at + 2 * BLOCK)?;
            return end.iter().all(|byte| *byte == 0).then_some(files);
        }
        let text = |from: usize, length: usize| {
            let field = &header[from..from + length];
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(length);
            String::from_utf8_lossy(&field[..end]).trim().to_owned()
        };
        let octal = |from, length| u64::from_str_radix(&text(from, length), 8).ok();
        let is_checksum_field = |index: &usize| (148..156).contains(index);
        let sum: u64 = (0..BLOCK)
            .map(|index| {
                if is_checksum_field(&index) {
                    32
                } else {
                    u64::from(header[index])
                }
            })
            .sum();
        if octal(148, 8)? != sum
            || &header[257..262] != b"ustar"
            || !matches!(header[156], 0 | b'0')
        {
            return None;
        }
        let size = usize::try_from(octal(124, 12)?).ok()?;
        at += BLOCK;
        let end = at.checked_add(size).filter(|end| *end <= archive.len())?;
        files.push(ContextFile {
            name: text(0, 100),
            mode: u32::try_from(octal(100, 8)?).ok()?,
            content: archive.slice(at..end),
        });
        at = end.next_multiple_of(BLOCK);
    }
}
