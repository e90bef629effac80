//! One line of the text form, read from left to right.

use crate::ScheduleError;
use crate::names::{Names, ends_word};

/// The rest of a line, with its number.
pub(super) struct Cursor<'a> {
    line: usize,
    rest: &'a str,
}

type Read<T> = Result<T, ScheduleError>;

impl<'a> Cursor<'a> {
    pub(super) fn new(line: usize, text: &'a str) -> Self {
        Cursor { line, rest: text.trim() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn line_is(&self, text: &str) -> bool {
        self.rest == text
    }

    /// An error at this place.
    pub(super) fn error(&self, expected: impl Into<String>) -> ScheduleError {
        let mut found: String = self.rest.chars().take(40).collect();
        if self.rest.is_empty() {
            found = "the end of the line".to_string();
        } else if found.len() < self.rest.len() {
            found.push('…');
        }
        ScheduleError::Text { line: self.line, expected: expected.into(), found }
    }

    /// Nothing may be left.
    pub(super) fn finish(&self) -> Read<()> {
        if self.is_empty() { Ok(()) } else { Err(self.error("the end of the line")) }
    }

    /// The next plain word, still unread.
    pub(super) fn peek_word(&self) -> &'a str {
        &self.rest[..self.rest.find(ends_word).unwrap_or(self.rest.len())]
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    pub(super) fn skip_word(&mut self) -> &mut Self {
        self.advance(self.peek_word().len());
        self
    }

    /// Takes a plain word when it comes next.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let next = self.peek_word() == word;
        if next {
            self.advance(word.len());
        }
        next
    }

    pub(super) fn keyword(&mut self, word: &str) -> Read<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.error(word)) }
    }

    /// Takes punctuation when it comes next.
    pub(super) fn eat(&mut self, mark: &str) -> bool {
        let next = self.rest.starts_with(mark);
        if next {
            self.advance(mark.len());
        }
        next
    }

    pub(super) fn mark(&mut self, mark: &str) -> Read<()> {
        if self.eat(mark) { Ok(()) } else { Err(self.error(format!("`{mark}`"))) }
    }

    pub(super) fn starts_with(&self, mark: &str) -> bool {
        self.rest.starts_with(mark)
    }

    /// A decimal or hexadecimal number.
    pub(super) fn number(&mut self) -> Read<u64> {
        let wide = self.wide_number()?;
        u64::try_from(wide).map_err(|_| self.error("a number of 64 bits before this"))
    }

    pub(super) fn wide_number(&mut self) -> Read<u128> {
        let (digits, radix) = match self.rest.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (self.rest, 10),
        };
        let len = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
        let number = u128::from_str_radix(&digits[..len], radix).map_err(|_| self.error("a number"))?;
        self.advance(self.rest.len() - digits.len() + len);
        Ok(number)
    }

    pub(super) fn small_number<T: TryFrom<u64>>(&mut self) -> Read<T> {
        let error = self.error("a smaller number");
        self.number()?.try_into().map_err(|_| error)
    }

    /// A name: one plain word, or quoted.
    pub(super) fn word(&mut self) -> Read<String> {
        if self.starts_with("\"") {
            return self.quoted();
        }
        let word = self.peek_word();
        if word.is_empty() {
            return Err(self.error("a name"));
        }
        self.advance(word.len());
        Ok(word.to_string())
    }

    fn quoted(&mut self) -> Read<String> {
        let mut strings = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
        match strings.next() {
            Some(Ok(name)) => {
                let len = strings.byte_offset();
                self.advance(len);
                Ok(name)
            }
            _ => Err(self.error("a quoted name")),
        }
    }

    pub(super) fn words_into(&mut self, names: &mut Vec<String>) -> Read<()> {
        while !self.is_empty() {
            names.push(self.word()?);
        }
        Ok(())
    }

    /// A name that takes the rest of the line, up to a semicolon.
    pub(super) fn rest(&mut self) -> Read<String> {
        if self.starts_with("\"") {
            return self.quoted();
        }
        let len = self.rest.find(';').unwrap_or(self.rest.len());
        let name = self.rest[..len].trim_end();
        if name.is_empty() {
            return Err(self.error("a name"));
        }
        self.advance(len);
        Ok(name.to_string())
    }

    /// One of a few spelled-out things.
    pub(super) fn one_of<T: Copy>(&mut self, what: &str, table: &[(&str, T)]) -> Read<T> {
        let word = self.peek_word();
        let Some(&(_, thing)) = table.iter().find(|(spelled, _)| *spelled == word) else {
            let words: Vec<&str> = table.iter().map(|(spelled, _)| *spelled).collect();
            return Err(self.error(format!("{what} ({})", words.join(", "))));
        };
        self.advance(word.len());
        Ok(thing)
    }

    /// The id of something named in a word, or `#number`.
    pub(super) fn id(&mut self, what: &str, names: &Names) -> Read<u32> {
        if self.eat("#") {
            return self.small_number();
        }
        let error = self.error(format!("the name of {what} listed above, used once"));
        let name = self.word()?;
        names.id(&name).ok_or(error)
    }

    /// The id of something whose name takes the rest of the line, or `#number`.
    pub(super) fn rest_id(&mut self, what: &str, names: &Names) -> Read<u32> {
        if self.eat("#") {
            return self.small_number();
        }
        let error = self.error(format!("the name of {what} known here"));
        let name = self.rest()?;
        names.id(&name).ok_or(error)
    }
}
