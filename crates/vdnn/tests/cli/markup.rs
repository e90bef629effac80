//! SVG and HTML as tests read them: balanced, escaped, and with attributes by name.

/// Names of elements, opened and closed in turn; panics where they are not balanced or a letter is not escaped.
pub fn elements(svg: &str) -> Vec<&str> {
    let (mut open, mut all, mut rest) = (Vec::new(), Vec::new(), svg);
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "a stray > before {}", &rest[start..rest.len().min(start + 80)]);
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes another element");
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "an open quote in <{tag}>");
        all.push(name);
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "open at the end: {open:?}, left over: {rest}");
    for (at, _) in svg.match_indices('&') {
        let entity = ["&amp;", "&lt;", "&gt;", "&quot;"].iter().any(|entity| svg[at..].starts_with(entity));
        assert!(entity, "a stray & at {at}");
    }
    all
}

/// One element of a name: what stands in its tag and what it encloses.
pub struct Element<'a> {
    tag: &'a str,
    /// Text and elements inside.
    pub inside: &'a str,
}

impl<'a> Element<'a> {
    /// An attribute; panics where there is none.
    pub fn attribute(&self, name: &str) -> &'a str {
        self.find(name).unwrap_or_else(|| panic!("no {name} in <{}>", self.tag))
    }

    /// An attribute, if it is there.
    pub fn find(&self, name: &str) -> Option<&'a str> {
        let start = self.tag.find(&format!(" {name}=\""))? + name.len() + 3;
        self.tag[start..].split('"').next()
    }

    /// An attribute as a number.
    pub fn number(&self, name: &str) -> f64 {
        self.attribute(name).parse().unwrap_or_else(|_| panic!("{name} is no number in <{}>", self.tag))
    }
}

/// All elements of a name that enclose none of that name, in order.
pub fn all<'a>(markup: &'a str, name: &str) -> Vec<Element<'a>> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut found = Vec::new();
    let mut rest = markup;
    while let Some(start) = rest.find(&open) {
        rest = &rest[start + open.len()..];
        let Some(end) = rest.find('>').filter(|_| rest.starts_with([' ', '>', '/'])) else { continue };
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let inside = if tag.ends_with('/') { "" } else { &rest[..rest.find(&close).expect("it is closed")] };
        found.push(Element { tag, inside });
    }
    found
}
