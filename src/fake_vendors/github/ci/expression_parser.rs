//! Parser of workflow expressions.

use serde_json::Value;

#[derive(Debug, PartialEq)]
pub(crate) enum Expr {
    Literal(Value),
    /// Context and the names after it.
    Path(Vec<String>),
    Index(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Compare(String, Box<Expr>, Box<Expr>),
    Call(String, Vec<Expr>),
}

pub(crate) fn parse(text: &str) -> Result<Expr, String> {
    let mut parser = Parser {
        text: text.trim(),
        whole: text,
    };
    let expr = parser.parse_or()?;
    match parser.text.trim_start() {
        "" => Ok(expr),
        rest => Err(format!("unexpected {rest:?} in expression {text:?}")),
    }
}

struct Parser<'a> {
    text: &'a str,
    whole: &'a str,
}

impl Parser<'_> {
    fn accept(&mut self, token: &str) -> bool {
        self.text = self.text.trim_start();
        match self.text.strip_prefix(token) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    fn parse_or(&mut self) -> Result<Expr, String> {
        let mut left = self.parse_and()?;
        while self.accept("||") {
            left = Expr::Or(Box::new(left), Box::new(self.parse_and()?));
        }
        Ok(left)
    }

    fn parse_and(&mut self) -> Result<Expr, String> {
        let mut left = self.comparison()?;
        while self.accept("&&") {
            left = Expr::And(Box::new(left), Box::new(self.comparison()?));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Expr, String> {
        let left = self.unary()?;
        for operator in ["==", "!=", "<=", ">=", "<", ">"] {
            if self.accept(operator) {
                let right = self.unary()?;
                return Ok(Expr::Compare(
                    operator.into(),
                    Box::new(left),
                    Box::new(right),
                ));
            }
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        self.text = self.text.trim_start();
        if self.text.starts_with('!') && !self.text.starts_with("!=") {
            self.accept("!");
            return Ok(Expr::Not(Box::new(self.unary()?)));
        }
        let mut expr = self.primary()?;
        loop {
            if self.accept("[") {
                let key = self.parse_or()?;
                self.expect("]")?;
                expr = match (expr, key) {
                    (Expr::Path(mut path), Expr::Literal(Value::String(name))) => {
                        path.push(name);
                        Expr::Path(path)
                    }
                    (of, key) => Expr::Index(Box::new(of), Box::new(key)),
                };
            } else if self.accept(".") {
                let name = self.name();
                expr = match expr {
                    Expr::Path(mut path) => {
                        path.push(name);
                        Expr::Path(path)
                    }
                    of => Expr::Index(Box::new(of), Box::new(Expr::Literal(name.into()))),
                };
            } else {
                return Ok(expr);
            }
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.accept(token) {
            Ok(())
        } else {
            Err(format!("expected {token:?} in expression {:?}", self.whole))
        }
    }

    fn primary(&mut self) -> Result<Expr, String> {
        if self.accept("(") {
            let inner = self.parse_or()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.accept("'") {
            return self.string();
        }
        let name = self.name();
        if name.is_empty() {
            return self.number();
        }
        if self.accept("(") {
            return Ok(Expr::Call(name, self.arguments()?));
        }
        Ok(match name.as_str() {
            "true" => Expr::Literal(true.into()),
            "false" => Expr::Literal(false.into()),
            "null" => Expr::Literal(Value::Null),
            _ => Expr::Path(vec![name]),
        })
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, String> {
        let mut arguments = Vec::new();
        if self.accept(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.parse_or()?);
            if !self.accept(",") {
                self.expect(")")?;
                return Ok(arguments);
            }
        }
    }

    /// Parses a string after its opening quote. A doubled quote is an escaped one.
    fn string(&mut self) -> Result<Expr, String> {
        let mut out = String::new();
        loop {
            let Some((before, after)) = self.text.split_once('\'') else {
                return Err(format!("unclosed string in expression {:?}", self.whole));
            };
            out.push_str(before);
            self.text = after;
            match after.strip_prefix('\'') {
                Some(rest) => {
                    out.push('\'');
                    self.text = rest;
                }
                None => return Ok(Expr::Literal(out.into())),
            }
        }
    }

    fn number(&mut self) -> Result<Expr, String> {
        let end = self
            .text
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
            .unwrap_or(self.text.len());
        let (digits, rest) = self.text.split_at(end);
        let number: Value = serde_json::from_slice(digits.as_bytes())
            .map_err(|_| format!("unexpected {:?} in expression {:?}", self.text, self.whole))?;
        self.text = rest;
        Ok(Expr::Literal(number))
    }

    fn name(&mut self) -> String {
        self.text = self.text.trim_start();
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !self.text.starts_with(starts) {
            return String::new();
        }
        let end = self
            .text
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
            .unwrap_or(self.text.len());
        let (name, rest) = self.text.split_at(end);
        self.text = rest;
        name.to_owned()
    }
}
