//! How names stand in the text form, for writer and reader alike.
//!
//! A plain name stands as it is; one with spaces or punctuation of the text form is quoted as in JSON. A thing whose name
//! is not unique is referred to by its number: `#12`.

use std::collections::HashMap;
use std::fmt;

/// True for characters that end a word.
pub(crate) fn ends_word(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "\"()[],;|#".contains(c)
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && !name.contains(ends_word)
}

/// True for names that may stand alone at the end of a line, before a semicolon.
fn is_line(name: &str) -> bool {
    let trimmed = name.trim() == name;
    trimmed
        && !name.is_empty()
        && !name.starts_with('#')
        && !name.contains(|c: char| c.is_control() || "\";".contains(c))
}

fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// A name as one word.
pub(crate) fn word(name: &str) -> String {
    if is_word(name) { name.to_string() } else { quoted(name) }
}

/// A name as the rest of a line.
pub(crate) fn line(name: &str) -> String {
    if is_line(name) { name.to_string() } else { quoted(name) }
}

/// Names by id, with a way back.
pub(crate) struct Names {
    /// The id of a name, or `None` for a name that several share.
    ids: HashMap<String, Option<u32>>,
    words: Vec<String>,
}

impl Names {
    /// Names that stand as words.
    pub(crate) fn words<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::written(names, word)
    }

    /// Names that stand as the rest of a line.
    pub(crate) fn lines<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::written(names, line)
    }

    fn written<'a>(names: impl IntoIterator<Item = &'a str>, write: fn(&str) -> String) -> Self {
        let mut all = Names { ids: HashMap::new(), words: Vec::new() };
        for name in names {
            all.push(name, write);
        }
        all
    }

    fn push(&mut self, name: &str, write: fn(&str) -> String) {
        let id = self.words.len() as u32;
        self.ids.entry(name.to_string()).and_modify(|id| *id = None).or_insert(Some(id));
        self.words.push(write(name));
    }

    /// Adds one more name to be read.
    pub(crate) fn add(&mut self, name: &str) {
        self.push(name, line);
    }

    /// The id of a unique name.
    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied().flatten()
    }

    /// True when no two share a name.
    pub(crate) fn all_unique(&self) -> bool {
        self.ids.len() == self.words.len()
    }

    /// How an id is written.
    pub(crate) fn refer(&self, id: u32) -> Reference<'_> {
        let word = self.words.get(id as usize).map(String::as_str);
        let unique = self.ids.len() == self.words.len() || word.is_some_and(|word| self.is_unique(word, id));
        Reference { id, word: word.filter(|_| unique) }
    }

    fn is_unique(&self, word: &str, id: u32) -> bool {
        let name: Option<String> = if word.starts_with('"') { serde_json::from_str(word).ok() } else { None };
        self.id(name.as_deref().unwrap_or(word)) == Some(id)
    }
}

/// A name, or a number where there is no unique name.
pub(crate) struct Reference<'a> {
    id: u32,
    word: Option<&'a str>,
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.word {
            Some(word) => f.write_str(word),
            None => write!(f, "#{}", self.id),
        }
    }
}
