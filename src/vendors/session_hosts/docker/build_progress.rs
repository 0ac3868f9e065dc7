//! Progress of an image build, as the engine streams it: one JSON object per line.

use serde::Deserialize;

use domain::sanitize::{single_line, truncate};

/// Maximum length of one object, in bytes. A longer one is dropped.
const MAX_OBJECT: usize = 256 << 10;

/// Maximum length of a progress line, in bytes.
const MAX_LINE: usize = 2_000;

/// Reader of the stream. Memory is bounded whatever the engine sends.
#[derive(Default)]
pub(super) struct BuildProgress {
    object: Vec<u8>,
    is_too_long: bool,
    /// Output of the build whose line has not ended.
    text: String,
    error: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Event {
    stream: String,
    status: String,
    id: String,
    #[serde(rename = "progressDetail")]
    detail: Option<Transfer>,
    error: Option<String>,
    #[serde(rename = "errorDetail")]
    error_detail: Option<ErrorDetail>,
}

#[derive(Deserialize)]
struct Transfer {
    current: Option<serde_json::Number>,
}

#[derive(Deserialize)]
struct ErrorDetail {
    message: Option<String>,
}

impl BuildProgress {
    /// Reads a chunk of the stream and passes every complete line of progress on.
    pub(super) fn read(&mut self, chunk: &[u8], on_line: &mut impl FnMut(&str)) {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.is_too_long |= self.object.len() + part.len() > MAX_OBJECT;
            if !self.is_too_long {
                self.object.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end_object(on_line);
            }
        }
    }

    /// Reads the rest of the stream.
    ///
    /// # Errors
    /// Returns the error that the engine reported.
    pub(super) fn finish(mut self, on_line: &mut impl FnMut(&str)) -> Result<(), String> {
        self.end_object(on_line);
        emit(&self.text, on_line);
        self.error.map_or(Ok(()), Err)
    }

    fn end_object(&mut self, on_line: &mut impl FnMut(&str)) {
        let event: Event = match self.is_too_long {
            true => Event::default(),
            false => serde_json::from_slice(&self.object).unwrap_or_default(),
        };
        self.object.clear();
        self.is_too_long = false;
        let detailed = event.error_detail.and_then(|detail| detail.message);
        if let Some(error) = detailed.or(event.error) {
            self.error.get_or_insert_with(|| line(&error));
        }
        let is_transfer = event.detail.is_some_and(|detail| detail.current.is_some());
        if !event.status.is_empty() && !is_transfer {
            match event.id.as_str() {
                "" => emit(&event.status, on_line),
                id => emit(&format!("{id}: {}", event.status), on_line),
            }
        }
        for part in event.stream.split_inclusive('\n') {
            self.text.push_str(part);
            if part.ends_with('\n') || self.text.len() > MAX_LINE {
                emit(&self.text, on_line);
                self.text.clear();
            }
        }
    }
}

fn emit(text: &str, on_line: &mut impl FnMut(&str)) {
    let line = line(text);
    if !line.is_empty() {
        on_line(&line);
    }
}

fn line(text: &str) -> String {
    let text = single_line(text.trim_end()).into_owned();
    truncate(text, MAX_LINE, domain::sanitize::ELLIPSIS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> (Vec<String>, Result<(), String>) {
        let (mut lines, mut progress) = (Vec::new(), BuildProgress::default());
        let mut on_line = |line: &str| lines.push(line.to_owned());
        for chunk in chunks {
            progress.read(chunk, &mut on_line);
        }
        let end = progress.finish(&mut on_line);
        (lines, end)
    }

    #[test]
    fn joins_output_to_lines_whatever_the_chunks() {
        let stream = "{\"stream\":\"Step 1/2 : FROM x\"}\r\n{\"stream\":\"\\n\"}\r\n\
            {\"status\":\"Pulling from library/x\",\"id\":\"1\"}\r\n\
            {\"status\":\"Downloading\",\"progressDetail\":{\"current\":1,\"total\":2},\"id\":\"a\"}\r\n\
            {\"status\":\"Pull complete\",\"progressDetail\":{},\"id\":\"a\"}\r\n\
            {\"stream\":\"a\\nb\\u001b[2J\\u202ec\"}\r\n\
            {\"aux\":{\"ID\":\"sha256:0\"}}\r\nnot JSON\r\n";
        let expected = [
            "Step 1/2 : FROM x",
            "1: Pulling from library/x",
            "a: Pull complete",
            "a",
            "bc",
        ];
        for size in [1, 7, 4_096] {
            let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            let (lines, end) = read(&chunks);
            assert_eq!(lines, expected, "{size}");
            assert_eq!(end, Ok(()));
        }
    }

    #[test]
    fn returns_the_first_error_even_without_a_line_end() {
        let error =
            br#"{"errorDetail":{"code":1,"message":"The command\nfailed"},"error":"other"}"#;
        assert_eq!(read(&[error]).1, Err("The command failed".to_owned()));
        let both = b"{\"error\":\"one\"}\n{\"error\":\"two\"}\n";
        assert_eq!(read(&[both]).1, Err("one".to_owned()));
    }

    #[test]
    fn bounds_objects_and_lines() {
        let long = format!(
            "{{\"stream\":\"{}\"}}\n{{\"stream\":\"after\\n\"}}\n",
            "x".repeat(MAX_OBJECT)
        );
        assert_eq!(read(&[long.as_bytes()]).0, ["after"]);
        let endless = format!("{{\"stream\":\"{}\"}}\n", "y".repeat(1_000)).repeat(100);
        let (lines, _) = read(&[endless.as_bytes()]);
        assert!(lines.len() > 10);
        assert!(lines.iter().all(|line| line.len() <= MAX_LINE), "{lines:?}");
    }
}
