//! Questions on the terminal.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::fd::AsFd;

use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use domain::sanitize::single_line;
use domain::secret::Secret;

/// Maximum length of an answer, in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// Maximum number of choices that are listed. Further values can be typed.
const MAX_LISTED: usize = 30;

/// Value that can be chosen, with the text to show.
pub(super) struct Choice<T> {
    pub(super) value: T,
    pub(super) label: String,
}

impl<T> Choice<T> {
    pub(super) fn new(value: T, label: impl Into<String>) -> Self {
        Self {
            value,
            label: label.into(),
        }
    }
}

/// Questions of one command. With `--yes` none is asked: each answer must have been given by a flag or a variable,
/// or have a default.
pub(super) struct Questions {
    assume_yes: bool,
}

impl Questions {
    pub(super) fn new(assume_yes: bool) -> Self {
        Self { assume_yes }
    }

    /// Whether somebody can answer.
    pub(super) fn can_ask(&self) -> bool {
        !self.assume_yes
    }

    /// Asks for one of several values; Enter selects the first.
    pub(super) fn choose<T>(
        &self,
        question: &str,
        flag: &str,
        choices: Vec<Choice<T>>,
    ) -> anyhow::Result<T> {
        self.require_answers(question, flag)?;
        println!("\n{question}");
        list(&choices);
        loop {
            let answer = ask("Number [1]: ")?;
            let number = match answer.as_str() {
                "" => Ok(1),
                text => text.parse::<usize>(),
            };
            match number.ok().and_then(|number| number.checked_sub(1)) {
                Some(at) if at < choices.len() => {
                    let mut choices = choices;
                    return Ok(choices.swap_remove(at).value);
                }
                _ => println!("Enter a number from 1 to {}.", choices.len()),
            }
        }
    }

    /// Asks for one of several names, or another that the vendor did not list. With `--yes`, a single one is taken.
    pub(super) fn choose_name(
        &self,
        question: &str,
        flag: &str,
        choices: &[Choice<String>],
    ) -> anyhow::Result<String> {
        if let ([only], true) = (choices, self.assume_yes) {
            return Ok(only.value.clone());
        }
        let names: Vec<&str> = choices.iter().map(|choice| choice.value.as_str()).collect();
        let names = names[..names.len().min(MAX_LISTED)].join(", ");
        self.require_answers(&format!("{question} {names}"), flag)?;
        println!("\n{question}");
        list(choices);
        let prompt = match choices.is_empty() {
            true => "Name: ",
            false => "Number or name [1]: ",
        };
        loop {
            let answer = ask(prompt)?;
            let listed = match answer.parse::<usize>() {
                Ok(number) => number.checked_sub(1).and_then(|at| choices.get(at)),
                Err(_) if answer.is_empty() => choices.first(),
                Err(_) => return Ok(answer),
            };
            match listed {
                Some(choice) => return Ok(choice.value.clone()),
                None => println!("Enter a number of the list, or a name."),
            }
        }
    }

    /// Asks for a text; Enter selects the default, if there is one.
    pub(super) fn text(
        &self,
        question: &str,
        flag: &str,
        default: Option<&str>,
    ) -> anyhow::Result<String> {
        if let (true, Some(default)) = (self.assume_yes, default) {
            return Ok(default.to_owned());
        }
        self.require_answers(question, flag)?;
        let shown = default.map_or_else(String::new, |default| {
            format!(" [{}]", single_line(default))
        });
        loop {
            let answer = ask(&format!("\n{question}{shown}: "))?;
            match (answer.is_empty(), default) {
                (false, _) => return Ok(answer),
                (true, Some(default)) => return Ok(default.to_owned()),
                (true, None) => println!("An answer is needed."),
            }
        }
    }

    /// Asks for a text. `None` if nothing was entered.
    pub(super) fn optional_text(&self, question: &str) -> anyhow::Result<Option<String>> {
        let answer = ask(&format!("\n{question}: "))?;
        Ok((!answer.is_empty()).then_some(answer))
    }

    /// Asks for a secret. The terminal does not show it. `@FILE` reads a file. `None` if nothing was entered.
    pub(super) fn secret(&self, question: &str, variable: &str) -> anyhow::Result<Option<Secret>> {
        self.require_answers(question, variable)?;
        loop {
            print!("\n{question} (not shown; @FILE reads a file): ");
            io::stdout().flush()?;
            let answer = {
                let _hidden = HiddenInput::start()?;
                read_line()?
            };
            if io::stdin().is_terminal() {
                println!();
            }
            let Some(path) = answer.strip_prefix('@') else {
                return Ok((!answer.is_empty()).then(|| Secret::new(answer)));
            };
            match std::fs::read_to_string(path) {
                Ok(text) => return Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n'])))),
                Err(error) => println!("Cannot read {}: {error}", single_line(path)),
            }
        }
    }

    /// Asks for a yes or no; Enter selects yes.
    pub(super) fn confirm(&self, question: &str) -> anyhow::Result<bool> {
        if self.assume_yes {
            return Ok(true);
        }
        loop {
            let answer = ask(&format!("\n{question} [Y/n]: "))?;
            match answer.to_ascii_lowercase().as_str() {
                "" | "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => println!("Enter y or n."),
            }
        }
    }

    fn require_answers(&self, question: &str, flag: &str) -> anyhow::Result<()> {
        if self.assume_yes {
            bail!("with --yes, {flag} must be set: {question}");
        }
        Ok(())
    }
}

fn list<T>(choices: &[Choice<T>]) {
    for (at, choice) in choices.iter().take(MAX_LISTED).enumerate() {
        println!("  {}) {}", at + 1, single_line(&choice.label));
    }
    if choices.len() > MAX_LISTED {
        println!("  … and {} more", choices.len() - MAX_LISTED);
    }
}

fn ask(prompt: &str) -> anyhow::Result<String> {
    print!("{prompt}");
    io::stdout().flush()?;
    read_line()
}

/// Reads one line of standard input, without spaces around it.
fn read_line() -> anyhow::Result<String> {
    let mut line = String::new();
    let stdin = io::stdin().lock();
    let length = stdin
        .take(MAX_ANSWER)
        .read_line(&mut line)
        .context("reading the answer")?;
    if length == 0 {
        bail!(
            "the input ended. Run the command again: it continues with what is already stored. Scripts use --yes"
        );
    }
    Ok(line.trim().to_owned())
}

/// Switches off the echo of the terminal until it is dropped.
struct HiddenInput(Option<Termios>);

impl HiddenInput {
    fn start() -> anyhow::Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self(None));
        }
        let shown = tcgetattr(stdin.as_fd())?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin.as_fd(), OptionalActions::Flush, &hidden)?;
        Ok(Self(Some(shown)))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        if let Some(shown) = &self.0 {
            // The terminal may be gone; then there is nothing to restore.
            let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Flush, shown);
        }
    }
}

/// Echo of the terminal, to restore if the process is interrupted during a hidden answer.
pub(super) struct TerminalState(Option<Termios>);

impl TerminalState {
    /// Reads the current state.
    pub(super) fn read() -> Self {
        Self(tcgetattr(io::stdin().as_fd()).ok())
    }

    /// Restores the state.
    pub(super) fn restore(&self) {
        if let Some(state) = &self.0 {
            let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Now, state);
        }
    }
}
