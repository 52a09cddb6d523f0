//! The text format of LVM metadata: sections, and names with numbers, strings and lists.
//!
//! Invariants
//! - TEXT-1: depth and number of values are bounded, so that any text needs bounded stack and memory.

use super::problem::{LabelProblem, TextFault};

const MAX_DEPTH: usize = 16;
const MAX_VALUES: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
    Section(Section),
}

/// Names with values, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section(Vec<(String, Value)>);

impl Section {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let mut entries = self.0.iter();
        entries.find(|(own, _)| own == name).map(|(_, value)| value)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self, name: &str) -> Option<&[Value]> {
        match self.get(name)? {
            Value::List(values) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        match self.get(name)? {
            Value::Section(section) => Some(section),
            _ => None,
        }
    }

    /// Returns all sections in it, with their names.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.0.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((name.as_str(), section)),
            _ => None,
        })
    }
}

/// Parses a text. Bytes that are not UTF-8 are replaced.
pub(crate) fn parse(text: &[u8]) -> Result<Section, LabelProblem> {
    let mut parser = Parser {
        text,
        at: 0,
        values: 0,
    };
    parser.section(0).map_err(|fault| LabelProblem::Text {
        line: 1 + text[..parser.at]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count(),
        fault,
    })
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    values: usize,
}

impl Parser<'_> {
    /// Skips spaces and comments. Returns the next byte. The text ends at a zero.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.get(self.at)? {
                0 => return None,
                b'#' => {
                    let rest = &self.text[self.at..];
                    let line = rest.iter().position(|&byte| byte == b'\n');
                    self.at += line.unwrap_or(rest.len());
                }
                byte if byte.is_ascii_whitespace() => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn take(&mut self, wanted: u8) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    /// Counts a value. TEXT-1
    fn count(&mut self) -> Result<(), TextFault> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(TextFault::TooMany);
        }
        Ok(())
    }

    /// Reads entries up to the closing bracket, or to the end at depth 0.
    fn section(&mut self, depth: usize) -> Result<Section, TextFault> {
        // TEXT-1
        if depth > MAX_DEPTH {
            return Err(TextFault::Depth);
        }
        let mut section = Section::default();
        loop {
            match self.peek() {
                None if depth == 0 => return Ok(section),
                None => return Err(TextFault::Open),
                Some(b'}') if depth > 0 => {
                    self.at += 1;
                    return Ok(section);
                }
                Some(_) => {}
            }
            self.count()?;
            let name = self.word();
            if name.is_empty() {
                return Err(TextFault::NoName);
            }
            let value = if self.take(b'{') {
                Value::Section(self.section(depth + 1)?)
            } else if self.take(b'=') {
                self.value(depth)?
            } else {
                return Err(TextFault::NoAssignment);
            };
            section.0.push((name, value));
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, TextFault> {
        // TEXT-1
        if depth > MAX_DEPTH {
            return Err(TextFault::Depth);
        }
        self.count()?;
        match self.peek() {
            Some(b'[') => {
                self.at += 1;
                let mut values = Vec::new();
                while !self.take(b']') {
                    if self.peek().is_none() {
                        return Err(TextFault::Open);
                    }
                    values.push(self.value(depth + 1)?);
                    self.take(b',');
                }
                Ok(Value::List(values))
            }
            Some(b'"') => {
                self.at += 1;
                Ok(Value::Text(self.quoted()?))
            }
            Some(_) => {
                let word = self.word();
                if word.is_empty() {
                    return Err(TextFault::NoValue);
                }
                Ok(word.parse().map_or(Value::Text(word), Value::Number))
            }
            None => Err(TextFault::NoValue),
        }
    }

    /// Reads a name or a number; may be empty.
    fn word(&mut self) -> String {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+./@".contains(byte);
        let rest = &self.text[self.at..];
        let len = rest.iter().take_while(|byte| is_part(byte)).count();
        self.at += len;
        String::from_utf8_lossy(&rest[..len]).into_owned()
    }

    /// Reads a string up to its closing quote.
    fn quoted(&mut self) -> Result<String, TextFault> {
        let mut bytes = Vec::new();
        loop {
            let byte = *self.text.get(self.at).ok_or(TextFault::OpenString)?;
            self.at += 1;
            match byte {
                b'"' => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                b'\\' => {
                    bytes.push(*self.text.get(self.at).ok_or(TextFault::OpenString)?);
                    self.at += 1;
                }
                byte => bytes.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_kinds_are_read() {
        let text = b"# of vgs\nvg1000 {\n id = \"a\\\"b\" # c\n seqno=3\n flags = []\n l = [\"pv0\", 12]\n s { x = -1 }\n}\n\0junk {";
        let parsed = parse(text).expect("a valid text");
        let group = parsed.section("vg1000").expect("a section");
        assert_eq!(group.text("id"), Some("a\"b"));
        assert_eq!(group.number("seqno"), Some(3));
        assert_eq!(group.list("flags"), Some(&[][..]));
        let list = [Value::Text("pv0".into()), Value::Number(12)];
        assert_eq!(group.list("l"), Some(&list[..]));
        let nested = group.section("s").expect("a section");
        assert_eq!(nested.get("x"), Some(&Value::Number(-1)));
        assert_eq!(nested.number("x"), None, "negative");
    }

    #[test]
    fn faults_name_their_line() {
        let fault = |text: &str| match parse(text.as_bytes()) {
            Err(LabelProblem::Text { line, fault }) => (line, fault),
            other => panic!("{other:?}"),
        };
        assert_eq!(fault("a {\nb = 1\n"), (3, TextFault::Open));
        assert_eq!(fault("a = \"x"), (1, TextFault::OpenString));
        assert_eq!(fault("a\n= [1,\n"), (3, TextFault::Open));
        assert_eq!(fault("a 1"), (1, TextFault::NoAssignment));
        assert_eq!(fault("a ="), (1, TextFault::NoValue));
        assert_eq!(fault("}"), (1, TextFault::NoName));
    }

    // TEXT-1
    #[test]
    fn depth_and_number_of_values_are_bounded() {
        let deep = |open: &str| parse(open.repeat(1 << 20).as_bytes());
        let is = |result, wanted| matches!(result, Err(LabelProblem::Text { fault, .. }) if fault == wanted);
        assert!(is(deep("a{"), TextFault::Depth));
        assert!(is(
            parse(format!("a={}", "[".repeat(1 << 20)).as_bytes()),
            TextFault::Depth
        ));
        assert!(is(deep("a=1 "), TextFault::TooMany));
    }
}
