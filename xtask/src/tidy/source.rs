//! A tracked file, with its code apart from its comments and strings.

/// One tracked text file.
pub struct Source {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// The text.
    pub text: String,
    /// For Rust, the text with comments and the insides of literals blanked out; else the text. Same lines.
    pub code: String,
}

impl Source {
    /// A file.
    pub fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { blank(text) } else { text.to_string() };
        Source { path: path.to_string(), text: text.to_string(), code }
    }

    /// True for Rust files.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The code without the unit tests at its end.
    pub fn code_without_tests(&self) -> &str {
        let start = self.code.find("#[cfg(test)]\nmod tests {").unwrap_or(self.code.len());
        &self.code[..start]
    }
}

/// Blanks out comments and the insides of string and character literals, keeping lines and length in characters.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out: Vec<char> = chars.clone();
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        for place in out.iter_mut().take(end).skip(at).filter(|c| **c != '\n') {
            *place = ' ';
        }
        at = end.max(at + 1);
    }
    out.into_iter().collect()
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none begins there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let word_before = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match (chars[at], chars.get(at + 1)) {
        ('/', Some('/')) => find(chars, at, |rest| rest.starts_with(&['\n'])),
        ('/', Some('*')) => block_end(chars, at),
        ('"', _) => quoted_end(chars, at + 1, '"'),
        ('r', Some('"' | '#')) if !word_before => raw_end(chars, at + 1).unwrap_or(at),
        ('b', Some('r')) if !word_before => raw_end(chars, at + 2).unwrap_or(at),
        ('\'', Some('\\')) => quoted_end(chars, at + 1, '\''),
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn find(chars: &[char], from: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len()).find(|&at| stop(&chars[at..])).unwrap_or(chars.len())
}

/// Block comments nest.
fn block_end(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

fn quoted_end(chars: &[char], mut at: usize, quote: char) -> usize {
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// The end of a raw string whose hashes begin at `at`; `None` if it is none.
fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + hashes) != Some(&'"') {
        return None;
    }
    let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let end = find(chars, at + hashes + 1, |rest| rest.starts_with(&close));
    Some((end + close.len()).min(chars.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("a.rs", text).code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        assert_eq!(code("a // unsafe\nb /* un /* nested */ safe */ c"), "a b c");
        assert_eq!(code(r#"f("unsafe \" {", '"', '\'', b'{') + g"#), "f( , , , b ) + g");
        assert_eq!(code("f(r\"\\\", r#\"a \" b\"#) + br\"x\" + r#type"), "f( , ) + + r#type");
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    }

    #[test]
    fn lines_stay() {
        let text = "a\n\"b\nc\"\n/* d\n */ e";
        assert_eq!(Source::new("a.rs", text).code.lines().count(), text.lines().count());
    }

    #[test]
    fn tests_at_the_end_are_left_out() {
        let source = Source::new("a.rs", "fn f() {}\n#[cfg(test)]\nmod tests { fn g() {} }\n");
        assert_eq!(source.code_without_tests(), "fn f() {}\n");
    }
}
