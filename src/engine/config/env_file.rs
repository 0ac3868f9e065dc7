//! Parser of environment files, with the rules of systemd's `EnvironmentFile=`. See
//! systemd.exec(5).

use std::collections::BTreeMap;
use std::iter::Peekable;
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

    fn parse(text: &str) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        let mut reader = Reader {
            rest: text.chars().peekable(),
            line: 1,
        };
        while let Some(first) = reader.rest.peek().copied() {
            match first {
                '#' | ';' => reader.skip_comment(),
                _ if first.is_whitespace() => {
                    reader.next();
                }
                _ => {
                    let name = reader.name()?;
                    values.insert(name, reader.value()?);
                }
            }
        }
        Ok(Self(values))
    }
}

struct Reader<'t> {
    rest: Peekable<Chars<'t>>,
    line: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
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
