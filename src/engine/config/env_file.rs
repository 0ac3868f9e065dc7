//! Parser and editor of environment files, with the rules of systemd's `EnvironmentFile=`. See
//! systemd.exec(5).

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::str::Chars;

/// Variables by name. The last assignment of a name counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvFile(BTreeMap<String, String>);

impl EnvFile {
    /// Reads a file. Credentials are read from the folder `credentials` beside it, as in the
    /// systemd unit, unless the file sets CREDENTIALS_DIRECTORY.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if a line is neither a comment nor an assignment.
    /// systemd would skip that line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|cause| format!("{shown}: {cause}"))?;
        let mut file = Self::parse(&text).map_err(|cause| format!("{shown}: {cause}"))?;
        let beside = path.with_file_name("credentials");
        if beside.is_dir() {
            let folder = beside.display().to_string();
            file.0
                .entry("CREDENTIALS_DIRECTORY".to_owned())
                .or_insert(folder);
        }
        Ok(file)
    }

    /// Value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether the file sets a secret.
    pub fn holds_secret(&self) -> bool {
        let is_set = |name: &String| self.get(name).is_some_and(|value| !value.is_empty());
        super::notices::secret_names().iter().any(is_set)
    }

    /// Names of all variables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the text of a file with another value of one variable. The rest stays as it is. A line
    /// that only comments the variable out is replaced.
    ///
    /// # Errors
    /// Fails if the text cannot be parsed.
    pub fn with_value(text: &str, name: &str, value: &str) -> Result<String, String> {
        let line = format!("{name}={}\n", quoted(value));
        let assignments = assignments(text)?;
        let mut own = assignments.iter().filter(|one| one.name == name);
        let span = match own.next_back() {
            Some(last) => last.span.clone(),
            None => commented_out(text, name).unwrap_or(text.len()..text.len()),
        };
        let separator = match text[..span.start].ends_with('\n') || span.start == 0 {
            true => "",
            false => "\n",
        };
        let (before, after) = (&text[..span.start], &text[span.end..]);
        Ok(format!("{before}{separator}{line}{after}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let values = assignments(text)?.into_iter();
        Ok(Self(values.map(|one| (one.name, one.value)).collect()))
    }
}

/// Assignment in a file.
struct Assignment {
    name: String,
    value: String,
    /// Bytes of the assignment, with the line break at its end.
    span: Range<usize>,
}

fn assignments(text: &str) -> Result<Vec<Assignment>, String> {
    let mut found = Vec::new();
    let mut reader = Reader {
        rest: text.chars().peekable(),
        line: 1,
        offset: 0,
    };
    while let Some(first) = reader.rest.peek().copied() {
        match first {
            '#' | ';' => reader.skip_comment(),
            _ if first.is_whitespace() => {
                reader.next();
            }
            _ => {
                let start = reader.offset;
                let (name, value) = (reader.name()?, reader.value()?);
                found.push(Assignment {
                    name,
                    value,
                    span: start..reader.offset,
                });
            }
        }
    }
    Ok(found)
}

/// Returns the bytes of a line `#NAME=…`, with its line break.
fn commented_out(text: &str, name: &str) -> Option<Range<usize>> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let assignment = line
            .strip_prefix('#')
            .and_then(|rest| rest.strip_prefix(name));
        let is_whole = !text[..start].ends_with("\\\n") && !line.trim_end().ends_with('\\');
        if is_whole && assignment.is_some_and(|rest| rest.starts_with('=')) {
            return Some(start..start + line.len());
        }
        start += line.len();
    }
    None
}

/// Returns a value as it is written in a file: in quotes if it has other than plain characters.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/@%+=".contains(c);
    if value.chars().all(is_plain) {
        return value.to_owned();
    }
    let escape = |c: char| match c {
        '"' | '\\' | '`' | '$' => vec!['\\', c],
        other => vec![other],
    };
    let escaped: String = value.chars().flat_map(escape).collect();
    format!("\"{escaped}\"")
}

struct Reader<'t> {
    rest: Peekable<Chars<'t>>,
    line: usize,
    /// Number of bytes that were read.
    offset: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        self.offset += next.map_or(0, char::len_utf8);
        next
    }

    /// Skips a comment; a backslash at its end continues it on the next line.
    fn skip_comment(&mut self) {
        while let Some(one) = self.next() {
            match one {
                '\n' => return,
                '\\' => drop(self.next()),
                _ => {}
            }
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let line = self.line;
        let mut name = String::new();
        loop {
            match self.next() {
                Some('=') => break,
                Some('\n') | None => return Err(format!("line {line} is not an assignment")),
                Some(other) => name.push(other),
            }
        }
        let name = name.trim_end();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit()) {
            Ok(name.to_owned())
        } else {
            Err(format!("line {line} does not begin with a variable name"))
        }
    }

    fn value(&mut self) -> Result<String, String> {
        let line = self.line;
        let mut value = String::new();
        // Length of the value up to its last character that must not be trimmed.
        let mut kept = 0;
        loop {
            match self.next() {
                Some('\n') | None => break,
                Some(quote @ ('"' | '\'')) if value.len() == kept => {
                    self.quoted(quote, &mut value)
                        .ok_or_else(|| format!("the quote in line {line} is not closed"))?;
                    kept = value.len();
                }
                Some('\\') => match self.next() {
                    Some('\n') | None => {}
                    Some(escaped) => {
                        value.push(escaped);
                        kept = value.len();
                    }
                },
                Some(one) if one.is_whitespace() && value.is_empty() => {}
                Some(one) => {
                    value.push(one);
                    if !one.is_whitespace() {
                        kept = value.len();
                    }
                }
            }
        }
        value.truncate(kept);
        Ok(value)
    }

    fn quoted(&mut self, quote: char, value: &mut String) -> Option<()> {
        loop {
            match self.next()? {
                end if end == quote => return Some(()),
                '\\' if quote == '"' => match self.next()? {
                    '\n' => {}
                    escaped @ ('"' | '\\' | '`' | '$') => value.push(escaped),
                    other => value.extend(['\\', other]),
                },
                one => value.push(one),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_values_as_systemd_does() {
        let text = "# a comment \\\nthat goes on=1\n; another\n\nPLAIN=a b  \nEMPTY=\n SPACED = x\n\
            SINGLE='a # \\n \"b\"'\nDOUBLE=\"a \\\"b\\\" \\$c \\n\"\nJOINED=a\\\nb\n\
            PEM=\"-----BEGIN\nabc\n-----END\"\nHASH=a#b\nURL=https://x.test/?a=b\nTWICE=1\nTWICE=2\nLAST=end";
        let read = EnvFile::parse(text).unwrap();
        for (name, value) in [
            ("PLAIN", "a b"),
            ("EMPTY", ""),
            ("SPACED", "x"),
            ("SINGLE", "a # \\n \"b\""),
            ("DOUBLE", "a \"b\" $c \\n"),
            ("JOINED", "ab"),
            ("PEM", "-----BEGIN\nabc\n-----END"),
            ("HASH", "a#b"),
            ("URL", "https://x.test/?a=b"),
            ("TWICE", "2"),
            ("LAST", "end"),
        ] {
            assert_eq!(read.get(name), Some(value), "{name}");
        }
        assert_eq!(read.get("that goes on"), None);
    }

    #[test]
    fn a_changed_value_is_read_back_and_the_rest_stays() {
        let text = "# comment\nA=1\n#B=example\nC='x\ny' \nA=2\n# B=prose";
        let changed = |name, value| EnvFile::with_value(text, name, value).unwrap();
        assert_eq!(changed("A", "3"), text.replace("A=2", "A=3"));
        assert_eq!(changed("B", "b"), text.replace("#B=example", "B=b"));
        assert_eq!(changed("C", "z"), text.replace("C='x\ny' ", "C=z"));
        assert_eq!(changed("NEW", "n"), format!("{text}\nNEW=n\n"));
        assert_eq!(EnvFile::with_value("", "A", "1").unwrap(), "A=1\n");
        assert!(EnvFile::with_value("A='1", "A", "2").is_err());
        let values = [
            "",
            " a b ",
            "a\"b\\c$d`e",
            "l1\nl2\n",
            "#x",
            "'q'",
            "ä€",
            "a\\",
            "=;=",
            "\t",
            "-----BEGIN X-----\nab+/=\n",
        ];
        for value in values {
            let once = EnvFile::with_value(text, "C", value).unwrap();
            let twice = EnvFile::with_value(&once, "C", value).unwrap();
            assert_eq!(once, twice);
            let read = EnvFile::parse(&once).unwrap();
            assert_eq!(read.get("C"), Some(value), "{once}");
            assert_eq!((read.get("A"), read.get("B")), (Some("2"), None));
        }
    }

    #[test]
    fn reports_the_line_of_an_invalid_assignment() {
        for (text, message) in [
            ("A=1\nnonsense\nB=2", "line 2 is not an assignment"),
            ("\nexport A=1", "line 2 does not begin with a variable name"),
            ("A='1\n", "the quote in line 1 is not closed"),
        ] {
            assert_eq!(EnvFile::parse(text), Err(message.to_owned()), "{text}");
        }
    }
}
